"""What a licence says about handing material on. A licence that is not listed here says no."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from eps_locked.errors import RefusedError
from eps_locked.publishing.parts import Source

_ATTRIBUTION = "name the source"
_SHARE_ALIKE = "pass on under the same terms"
_NON_COMMERCIAL = "no commercial use"


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """``hub``: the licence as hub metadata spells it. ``conditions``: those that go with a row."""

    hub: str
    conditions: tuple[str, ...] = ()


_FREE = ("cc0-1.0", "unlicense", "pddl", "wtfpl", "0bsd")
_NOTICE = ("mit", "apache-2.0", "bsd-2-clause", "bsd-3-clause", "isc", "zlib", "odc-by")
_MODELS = ("llama2", "llama3", "llama3.1", "llama3.2", "llama3.3", "gemma", "openrail")
_TERMS: dict[str, Terms] = {
    **{name: Terms(hub=name) for name in (*_FREE, *_NOTICE)},
    **{f"cc-by-{v}": Terms(hub=f"cc-by-{v}", conditions=(_ATTRIBUTION,)) for v in ("3.0", "4.0")},
    **{
        f"cc-by-sa-{v}": Terms(hub=f"cc-by-sa-{v}", conditions=(_ATTRIBUTION, _SHARE_ALIKE))
        for v in ("3.0", "4.0")
    },
    **{
        f"cc-by-nc-{v}": Terms(hub=f"cc-by-nc-{v}", conditions=(_ATTRIBUTION, _NON_COMMERCIAL))
        for v in ("3.0", "4.0")
    },
    **{
        f"cc-by-nc-sa-{v}": Terms(
            hub=f"cc-by-nc-sa-{v}", conditions=(_ATTRIBUTION, _NON_COMMERCIAL, _SHARE_ALIKE)
        )
        for v in ("3.0", "4.0")
    },
    "odbl": Terms(hub="odbl", conditions=(_ATTRIBUTION, _SHARE_ALIKE)),
    **{name: Terms(hub=name, conditions=("the model's own terms of use",)) for name in _MODELS},
}
_TERMS["odc-by"] = Terms(hub="odc-by", conditions=(_ATTRIBUTION,))
_SAME = {"odc-by-1.0": "odc-by", "odbl-1.0": "odbl", "cc0": "cc0-1.0", "apache2.0": "apache-2.0"}
_BETWEEN = re.compile(r"[\s_-]+")
# What the scripted stand-in for a model says of itself.
NO_MODEL = "none needed"


def terms_of(licence: str, *, thing: str) -> Terms:
    """What the licence allows. Raises RefusedError naming the file and the licence.

    An empty licence, one nobody here knows, and one that forbids changed copies (ND) are one case:
    the text is not handed on until somebody has read the terms.
    """
    name = _BETWEEN.sub("-", licence.strip().casefold())
    found = _TERMS.get(_SAME.get(name, name))
    if found is None:
        raise RefusedError(
            thing,
            problem="may not be published",
            expected="a licence known to allow it, for example CC0-1.0, MIT or CC-BY-4.0",
            found=repr(licence),
            next_step="if its terms allow it, write their SPDX name into the file; if they do not, "
            "write redistribute: false there; then freeze anew",
        )
    return found


def require_shareable(sources: Iterable[Source], *, model: Source) -> None:
    """Require that every file whose texts would be shipped may be. Lists all that may not."""
    troubles = []
    for source in (*sources, model):
        if not source.redistribute or (source is model and source.licence == NO_MODEL):
            continue
        try:
            terms_of(source.licence, thing=source.path)
        except RefusedError as error:
            troubles.append(error)
    if len(troubles) > 1:
        raise RefusedError(
            f"{troubles[0].thing} and {len(troubles) - 1} more",
            problem="may not be published",
            expected=troubles[0].expected,
            details=tuple(f"{error.thing}: {error.found}" for error in troubles),
            found="another",
            next_step=troubles[0].next_step,
        )
    if troubles:
        raise troubles[0]


def conditions_of(source: Source) -> tuple[str, ...]:
    """Conditions that go along with a text of this file; none for what is left out anyway."""
    if not source.redistribute or source.licence == NO_MODEL:
        return ()
    return terms_of(source.licence, thing=source.path).conditions


def hub_licences(sources: Iterable[Source]) -> list[str]:
    """The licences of everything that is shipped, in hub spelling and name order."""
    return sorted(
        {
            terms_of(source.licence, thing=source.path).hub
            for source in sources
            if source.redistribute and source.licence != NO_MODEL
        }
    )
