"""How each model was served, as its endpoints said it, and in what two models differ there.

Quantisation, context, template and server move rates by themselves. None of it keeps two models out
of one comparison; all of it is said beside the comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

__all__ = ["UNKNOWN", "changed_names", "differences", "server_words", "template_of"]

UNKNOWN: Final = "unknown"
# The last part of a name under which servers tell their chat template, ours first.
_TEMPLATES: Final = ("template_digest", "chat_template_digest", "chat_template")
_DIFFERENCES: Final[Mapping[str, str]] = {
    "quantisation": "quantisation",
    "context_length": "context length",
    "template_digest": "chat template",
    "server": "server",
}


def template_of(said: Mapping[str, str]) -> str:
    """What an endpoint says of its chat template: a digest of our own server, of others what is
    there; ``unknown`` where it says nothing."""
    for part in _TEMPLATES:
        for name, text in sorted(said.items()):
            if name.rpartition(".")[2] == part:
                return text
    return UNKNOWN


def server_words(endpoint: Mapping[str, Any]) -> str:
    """The server and its engine with their versions, as far as they tell."""
    said = endpoint.get("said", {})
    parts = [
        said.get("eps_locked.server") or endpoint.get("server", UNKNOWN),
        said.get("eps_locked.engine", ""),
        said.get("eps_locked.engine_version", ""),
    ]
    return " ".join(part for part in parts if part) or UNKNOWN


def changed_names(endpoints: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of what an endpoint did not say alike each time it was asked during one run."""
    flat = [_flat(one) for one in endpoints]
    names = sorted({name for one in flat for name in one})
    return [name for name in names if len({one.get(name) for one in flat}) > 1]


def differences(model: Mapping[str, Any], base: Mapping[str, Any]) -> list[dict[str, Any]]:
    """In what two models (entries of a document) were served differently."""
    return [
        {"what": words, "model": model[key], "base": base[key]}
        for key, words in _DIFFERENCES.items()
        if model[key] != base[key]
    ]


def _flat(endpoint: Mapping[str, Any]) -> dict[str, str]:
    pairs: Iterable[tuple[str, str]] = dict(endpoint.get("said", {})).items()
    return {
        **{f"said.{name}": text for name, text in pairs},
        **{key: str(endpoint[key]) for key in ("kind", "server") if key in endpoint},
    }
