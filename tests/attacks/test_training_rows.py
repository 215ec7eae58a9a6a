"""What a fit saw follows from recorded answers: change those afterwards, and the fit is named.

The chain, every digest and every sum are rebuilt after the change (docs/lock.md, L16.5). Who also
rewrites the record and the adapter's header tells a consistent lie, which needs a replay to show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sim.forge import (
    Payload,
    carry_on,
    edit_json,
    output_files,
    payloads_of,
    put_output,
    rebuild,
)
from sim.simulator import StudySimulator

Change = Callable[[Any], object]
ALL_FITS = {f"P1/fit/marker/{name}/s{seed}" for name in ("baker", "polite") for seed in (11, 12)}


def edit_output(
    study: StudySimulator, payloads: list[Payload], step: str, file: str, change: Change
) -> None:
    output = step.split("/")[1]
    files = output_files(study, payloads, step, output)
    files[file] = edit_json(files[file], change)
    put_output(study, payloads, step, output, files)


def edit_answers(study: StudySimulator, context: str, change: Change) -> None:
    payloads = payloads_of(study)
    edit_output(study, payloads, f"P0/answers/marker/{context}", "readings.json", change)
    carry_on(study, payloads)
    rebuild(study, payloads)


def failures_of(study: StudySimulator) -> set[tuple[int, str]]:
    """(check, step it names)."""
    return {(number, text.split(": ")[0]) for number, text in study.audit().failures()}


def other_first_token(readings: Any) -> None:
    readings["answers"][0]["token_ids"][0] += 1


@pytest.mark.parametrize(
    ("context", "fits"),
    [
        ("baker", {fit for fit in ALL_FITS if "baker" in fit}),
        ("polite", {fit for fit in ALL_FITS if "polite" in fit}),
    ],
)
def test_a_source_answer_changed_after_training_names_the_fits_that_saw_it(
    finished: StudySimulator, context: str, fits: set[str]
) -> None:
    edit_answers(finished, context, other_first_token)
    assert failures_of(finished) == {(10, fit) for fit in fits}


def test_a_panel_answer_changed_after_training_names_the_fits_it_was_dealt_to(
    finished: StudySimulator,
) -> None:
    def every_first_token(readings: Any) -> None:
        for answer in readings["answers"]:
            answer["token_ids"][0] += 1

    edit_answers(finished, "officer", every_first_token)
    assert failures_of(finished) == {(10, fit) for fit in ALL_FITS}
    texts = [text for _, text in finished.audit().failures()]
    assert all("expected training rows blake3:" in text for text in texts)


def test_two_answers_that_change_places_are_another_training(finished: StudySimulator) -> None:
    def swap(readings: Any) -> None:
        one, two = readings["answers"][:2]
        one["token_ids"], two["token_ids"] = two["token_ids"], one["token_ids"]

    edit_answers(finished, "baker", swap)
    assert failures_of(finished) == {(10, fit) for fit in ALL_FITS if "baker" in fit}


def test_a_record_that_is_made_to_follow_still_leaves_the_adapters_header(
    finished: StudySimulator,
) -> None:
    edit_answers(finished, "baker", other_first_token)
    (text,) = {
        text
        for number, text in finished.audit().failures()
        if number == 10 and "baker/s11: record.rows" in text
    }
    rows = text.split("expected training rows ")[1].split(",")[0]
    payloads = payloads_of(finished)
    for step in ("P1/fit/marker/baker/s11", "P1/adapter/marker/baker/s11"):
        output = "record" if "adapter" in step else "fit"
        files = output_files(finished, payloads, step, output)
        files["record.json"] = edit_json(files["record.json"], lambda r: r.update(rows=rows))
        put_output(finished, payloads, step, output, files)
    carry_on(finished, payloads)
    rebuild(finished, payloads)
    texts = [text for number, text in finished.audit().failures() if "P1/fit/marker/baker" in text]
    assert any(text.startswith("P1/fit/marker/baker/s11: adapter: expected") for text in texts)
    assert not any("baker/s11: record.rows" in text for text in texts)


def test_a_step_matched_fit_is_named_at_the_step_that_trained_it(study: StudySimulator) -> None:
    """A source that cannot reach the band trains in its adapter step; rows are checked there."""
    slots = study.plan["eps"]["slots"]
    slots["train"] = ["baker", "told"]
    slots["eval"] = ["baker", "told", "plain"]
    slots["held_out"] = []
    study.run_all()
    assert list(study.audit().failures()) == []
    edit_answers(study, "told", other_first_token)
    assert failures_of(study) == {(10, f"P1/adapter/marker/told/s{seed}") for seed in (11, 12)}
