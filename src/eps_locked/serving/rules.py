"""What a server offers and within which bounds: its routes and its rules."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eps_locked.domain.model import AdapterFiles
from eps_locked.errors import BackendError, MalformedInputError

__all__ = ["ServedRoute", "ServingRules", "require_routes", "window_of"]

_ROUTE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedRoute:
    """A name that requests give as their model; no adapter means the bare base."""

    name: str
    adapter: AdapterFiles | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingRules:
    """Bounds in tokens.

    ``context_length`` is for a prompt and all that is written after it. ``max_tokens`` is how long
    an answer may be, and ``thinking_budget`` how long the reasoning before it, where a request
    does not say; an answer's default shrinks to what the context leaves, the budget does not.
    """

    context_length: int
    max_tokens: int = 512
    thinking_budget: int = 256

    def __post_init__(self) -> None:
        for name in ("context_length", "max_tokens", "thinking_budget"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise MalformedInputError(
                    f"serving rules: {name}", expected="at least 1 token", found=value
                )


def require_routes(routes: Sequence[ServedRoute]) -> dict[str, ServedRoute]:
    """The routes by name. Raises MalformedInputError for none, an odd name, or one given twice."""
    if not routes:
        raise MalformedInputError("routes", expected="at least one", found="none")
    found: dict[str, ServedRoute] = {}
    for route in routes:
        if not _ROUTE.fullmatch(route.name):
            raise MalformedInputError(
                "route",
                expected="letters, digits, dots, dashes and underscores (at most 63)",
                found=repr(route.name),
            )
        if route.name in found:
            raise MalformedInputError(
                f"route {route.name}", problem="is given twice", next_step="rename one of them"
            )
        found[route.name] = route
    return found


def window_of(folder: Path | None) -> int:
    """The most tokens that the model in ``folder`` takes, by its config.json; None: the stand-in.

    Raises BackendError where the file does not say.
    """
    if folder is None:
        return SCRIPTED_WINDOW
    path = folder / "config.json"
    try:
        value = json.loads(path.read_bytes())["max_position_embeddings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BackendError(
            str(path),
            expected="a number of max_position_embeddings",
            found=f"{type(error).__name__}: {error}",
            next_step="say the context length yourself",
        ) from error
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BackendError(f"{path}: max_position_embeddings", expected="a count", found=value)
    return value


# What the scripted engine takes unless it is told otherwise.
SCRIPTED_WINDOW = 65536
