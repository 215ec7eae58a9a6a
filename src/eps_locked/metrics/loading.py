"""Finding plug-ins without running them, and loading one where it may run.

``find`` looks only at names and places, so that no line of an author's code runs in the harness's
own process; ``load`` imports it, and is called inside the box (child.py) alone.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from eps_locked.errors import MalformedInputError
from eps_locked.metrics.interface import Metric

__all__ = ["GROUP", "Plugin", "find", "find_file", "installed", "load", "require_metric"]

GROUP = "eps_locked.metrics"
SHIPPED_MODULE = "eps_locked.metrics.shipped"
METRIC_ID = re.compile(r"[a-z0-9][a-z0-9_-]*\Z")
_FILE_MODULE = "eps_locked_metric_under_development"
_TEXTS = ("id", "title", "author", "polarity", "track", "description")
_CHOICES = {"polarity": ("more", "less"), "track": ("predictive", "post_hoc")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugin:
    """Where a metric's code lies.

    ``module`` and ``attribute`` name it; ``top`` is the top-level module that has to be found,
    ``origin`` its file (None for a namespace package), ``folders`` what its submodules are found
    in. ``places`` are what the box must let it read.
    """

    name: str
    kind: str
    module: str
    attribute: str
    top: str
    origin: str | None
    folders: tuple[str, ...]

    @property
    def places(self) -> tuple[Path, ...]:
        if self.folders:
            return tuple(Path(folder) for folder in self.folders)
        return () if self.origin is None else (Path(self.origin),)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "module": self.module,
            "attribute": self.attribute,
            "top": self.top,
            "origin": self.origin,
            "folders": list(self.folders),
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Plugin:
        return cls(**{**value, "folders": tuple(value["folders"])})


def installed() -> tuple[Plugin, ...]:
    """Every metric by name: those shipped here, then the entry points of installed packages.

    Raises MalformedInputError for two metrics of one name or an entry point of another form.
    """
    from eps_locked.metrics.shipped import SHIPPED

    plugins = [
        _of_module(name, "shipped", SHIPPED_MODULE, attribute)
        for name, attribute in SHIPPED.items()
    ]
    for point in importlib.metadata.entry_points(group=GROUP):
        if not point.attr or not METRIC_ID.match(point.name):
            raise MalformedInputError(
                f"entry point {point.name!r} of group {GROUP}",
                expected="ID = package.module:attribute, ID of letters, digits, _ and -",
                found=point.value,
            )
        plugins.append(_of_module(point.name, "entry point", point.module, point.attr))
    names = [plugin.name for plugin in plugins]
    for name in names:
        if names.count(name) > 1:
            raise MalformedInputError(
                f"metric {name}",
                problem="is offered twice",
                details=tuple(
                    f"{p.kind} {p.module}:{p.attribute}" for p in plugins if p.name == name
                ),
                next_step="uninstall one of the packages",
            )
    return tuple(sorted(plugins, key=lambda plugin: plugin.name))


def find(name: str) -> Plugin:
    """The installed metric of this name. Raises MalformedInputError naming the known ones."""
    plugins = installed()
    for plugin in plugins:
        if plugin.name == name:
            return plugin
    raise MalformedInputError(
        f"metric {name!r}",
        expected=" or ".join(plugin.name for plugin in plugins),
        found="none of that name",
        next_step="install its package, or name its file: --plugin FILE.py:ATTRIBUTE",
    )


def find_file(reference: str) -> Plugin:
    """A metric under development: ``path/to/file.py:attribute``. Only that file can be read."""
    path_text, _, attribute = reference.rpartition(":")
    path = Path(path_text)
    if not path_text.endswith(".py") or not attribute.isidentifier():
        raise MalformedInputError(
            "--plugin", expected="path/to/file.py:attribute", found=repr(reference)
        )
    if not path.is_file():
        raise MalformedInputError(str(path), problem="is missing or no file")
    return Plugin(
        name=reference,
        kind="file",
        module=_FILE_MODULE,
        attribute=attribute,
        top=_FILE_MODULE,
        origin=str(path.resolve()),
        folders=(),
    )


def load(plugin: Plugin) -> Metric:
    """Import a plug-in and return its metric, checked. A class is called without arguments."""
    _Finder.install(plugin)
    module: ModuleType = importlib.import_module(plugin.module)
    value: Any = module
    for part in plugin.attribute.split("."):
        if not hasattr(value, part):
            raise MalformedInputError(
                f"{plugin.name}: {plugin.attribute}",
                expected="an attribute of the module",
                found="none of that name",
            )
        value = getattr(value, part)
    return require_metric(value() if isinstance(value, type) else value, plugin)


def require_metric(value: Any, plugin: Plugin) -> Metric:
    """The value as a metric; every missing or wrong part is named at once."""
    problems = []
    for key in _TEXTS:
        found = getattr(value, key, None)
        if not isinstance(found, str) or not found.strip():
            problems.append(f"{key}: expected a text, found {found!r:.60}")
        elif key in _CHOICES and found not in _CHOICES[key]:
            problems.append(f"{key}: expected {' or '.join(_CHOICES[key])}, found {found!r:.60}")
        elif key == "id" and not METRIC_ID.match(found):
            problems.append(
                f"id: expected lower-case letters, digits, _ and -, found {found!r:.60}"
            )
        elif key == "id" and plugin.kind != "file" and found != plugin.name:
            problems.append(f"id: expected {plugin.name}, as it is registered, found {found!r:.60}")
    for key in ("behaviour_vector", "score"):
        if not callable(getattr(value, key, None)):
            problems.append(f"{key}: expected a method, found none")
    if problems:
        raise MalformedInputError(
            f"metric {plugin.name}",
            problem="does not offer what eps_locked.metrics.interface.Metric asks for",
            details=tuple(problems),
        )
    return cast(Metric, value)


def _of_module(name: str, kind: str, module: str, attribute: str) -> Plugin:
    """A metric in an importable module. Finding a top-level name runs none of its code."""
    top = module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        raise MalformedInputError(
            f"metric {name}", expected=f"an installed module {top}", found="none"
        )
    return Plugin(
        name=name,
        kind=kind,
        module=module,
        attribute=attribute,
        top=top,
        origin=spec.origin,
        folders=tuple(str(Path(p).resolve()) for p in spec.submodule_search_locations or ()),
    )


class _Finder:
    """Finds one top-level module at a known place: its parent folder cannot be listed in the box,
    and the ordinary finder would look there."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    @classmethod
    def install(cls, plugin: Plugin) -> None:
        if plugin.top not in sys.modules:
            sys.meta_path.insert(0, cls(plugin))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._plugin.top or self._plugin.origin is None:
            return None
        return importlib.util.spec_from_file_location(
            name,
            self._plugin.origin,
            submodule_search_locations=list(self._plugin.folders) or None,
        )
