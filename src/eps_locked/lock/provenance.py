"""What runs: digests of our own source tree, and the resolved versions it runs with."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import eps_locked
from eps_locked.canonical import digest_bytes
from eps_locked.errors import MalformedInputError
from eps_locked.files import read_bytes

# What numbers and verdicts depend on. Tools that only watch (linters, test runners) are left out:
# updating one must not end a study.
RUNTIME_ROOTS = (
    "blake3",
    "jsonschema",
    "numpy",
    "pyarrow",
    "pyyaml",
    "rfc8785",
    "scipy",
    "torch",
    "transformers",
    "peft",
    "safetensors",
    "tokenizers",
    "gguf",
)
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")


def package_folder() -> Path:
    """The folder our own modules are imported from."""
    return Path(eps_locked.__file__).resolve().parent


def schema_folder() -> Path:
    """Where the JSON Schemas lie: inside an installed package, or beside ``src`` in a checkout."""
    inside = package_folder() / "schemas"
    return inside if inside.is_dir() else package_folder().parents[1] / "schemas"


def source_tree() -> dict[str, str]:
    """Digest of every file of this package and of the schemas, by POSIX name."""
    return {
        **_tree(package_folder(), "eps_locked"),
        **_tree(schema_folder(), "schemas"),
    }


def _tree(root: Path, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if "__pycache__" in relative.parts or not path.is_file():
            continue
        # Copies that a wheel carries inside the package, and a checkout elsewhere.
        if prefix == "eps_locked" and relative.parts[0] in ("schemas", "for_auditors"):
            continue
        found[f"{prefix}/{relative.as_posix()}"] = digest_bytes(read_bytes(path))
    if not found:
        raise MalformedInputError(str(root), problem="holds no source files")
    return found


def resolved_environment() -> dict[str, Any]:
    """Python, platform and the version of every installed package that results depend on."""
    return {
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "implementation": platform.python_implementation(),
        "machine": platform.machine(),
        "system": platform.system(),
        "packages": dict(sorted(_closure(RUNTIME_ROOTS).items())),
    }


def _closure(roots: Iterable[str]) -> dict[str, str]:
    """Installed versions of ``roots`` and of everything installed that they require."""
    versions: dict[str, str] = {}
    queue = [_normalise(root) for root in roots]
    while queue:
        name = queue.pop()
        if name in versions:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        versions[name] = distribution.version
        for requirement in distribution.requires or ():
            if "extra ==" in requirement:
                continue
            match = _NAME.match(requirement)
            if match:
                queue.append(_normalise(match.group()))
    return versions


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
