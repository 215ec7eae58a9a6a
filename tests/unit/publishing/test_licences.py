"""Which licences let material be handed on, and what a refusal says."""

from __future__ import annotations

import pytest

from eps_locked.errors import RefusedError
from eps_locked.publishing.licences import (
    NO_MODEL,
    conditions_of,
    hub_licences,
    require_shareable,
    terms_of,
)
from eps_locked.publishing.parts import Source

MODEL = Source(path="base model m", licence="Apache-2.0", provenance="hub m")


def source(licence: str, path: str = "house/a.yaml", *, redistribute: bool = True) -> Source:
    return Source(path=path, licence=licence, provenance="found", redistribute=redistribute)


@pytest.mark.parametrize(
    ("licence", "hub", "n_conditions"),
    [
        ("CC0-1.0", "cc0-1.0", 0),
        ("Apache-2.0", "apache-2.0", 0),
        ("MIT", "mit", 0),
        ("ODC-BY", "odc-by", 1),
        ("ODC-BY-1.0", "odc-by", 1),
        ("CC BY 4.0", "cc-by-4.0", 1),
        ("CC-BY-NC-SA-4.0", "cc-by-nc-sa-4.0", 3),
        (" cc by-nc sa 4.0 ", "cc-by-nc-sa-4.0", 3),
    ],
)
def test_a_known_licence_is_read_in_any_spelling(licence: str, hub: str, n_conditions: int) -> None:
    found = terms_of(licence, thing="a")
    assert (found.hub, len(found.conditions)) == (hub, n_conditions)


@pytest.mark.parametrize(
    "licence",
    ["", "  ", "not stated", "proprietary", "CC-BY-ND-4.0", "CC-BY-NC-ND-4.0", "MIT or so", "see"],
)
def test_any_other_licence_refuses_naming_file_and_licence(licence: str) -> None:
    with pytest.raises(RefusedError) as caught:
        require_shareable([source("MIT"), source(licence, "house/b.yaml")], model=MODEL)
    assert caught.value.exit_code == 3
    assert caught.value.thing == "house/b.yaml"
    assert caught.value.found == repr(licence)
    assert "redistribute: false" in str(caught.value.next_step)


def test_every_file_that_may_not_be_shared_is_listed_at_once() -> None:
    with pytest.raises(RefusedError) as caught:
        require_shareable([source("mine", "a.yaml"), source("yours", "b.yaml")], model=MODEL)
    assert caught.value.details == ("a.yaml: 'mine'", "b.yaml: 'yours'")


def test_a_file_marked_as_not_to_be_handed_on_may_have_any_licence() -> None:
    kept = source("not stated", redistribute=False)
    require_shareable([kept], model=MODEL)
    assert kept.withheld is not None
    assert "house/a.yaml" in kept.withheld
    assert "not stated" in kept.withheld
    assert (conditions_of(kept), hub_licences([kept])) == ((), [])


def test_an_unknown_licence_of_the_base_model_refuses_too() -> None:
    model = Source(path="base model m", licence="ask us", provenance="hub m")
    with pytest.raises(RefusedError, match="base model m: may not be published"):
        require_shareable([source("MIT")], model=model)


def test_the_scripted_stand_in_needs_no_licence_and_nothing_else_may_say_so() -> None:
    scripted = Source(path="base model scripted", licence=NO_MODEL, provenance="scripted")
    require_shareable([source("MIT")], model=scripted)
    with pytest.raises(RefusedError):
        require_shareable([source(NO_MODEL)], model=scripted)


def test_hub_licences_are_those_of_what_is_shipped() -> None:
    found = hub_licences([source("MIT"), source("CC0-1.0"), source("x", redistribute=False), MODEL])
    assert found == ["apache-2.0", "cc0-1.0", "mit"]
