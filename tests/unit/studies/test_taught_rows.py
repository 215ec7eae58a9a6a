"""What the fits of taught rows see in a run: whose answers, under which prompt, named where."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from eps_locked.audit.lineage import safetensors_metadata
from eps_locked.canonical import decode
from eps_locked.domain.model import TrainingRow
from eps_locked.lock.inputs import RecordedInputs
from eps_locked.models.scripted import END_ID, ScriptedTokenizer
from eps_locked.studies.common.prompts import Prompts
from eps_locked.studies.eps.derive import rows_digest
from eps_locked.studies.eps.plan import EpsPlan
from eps_locked.studies.eps.taught.derive import taught_rows
from eps_locked.studies.eps.taught.records import answers_from_files
from eps_locked.training.scripted import ScriptedTrainer
from sim.simulator import StudySimulator, taught_plan, taught_row

PANEL = ("curious", "officer")
SEEDS = (11, 12)
# A limit at which some of the scripted answers are cut and some end by themselves.
LIMIT = 36
Fit = tuple[str, str, int]


class ListeningTrainer(ScriptedTrainer):
    """Keeps the rows of every fit by (behaviour, context, seed)."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[Fit, tuple[TrainingRow, ...]] = {}

    def fit(self, rows: Sequence[TrainingRow], *args: Any, **kwargs: Any) -> Any:
        named: Mapping[str, str] = kwargs["provenance"]
        self.rows[named["behaviour"], named["context"], kwargs["seed"]] = tuple(rows)
        return super().fit(rows, *args, **kwargs)


@dataclass
class Trained:
    """A finished study with the rows its trainer saw."""

    study: StudySimulator
    trainer: ListeningTrainer
    done: Mapping[str, Any] = field(default_factory=dict)

    def frozen(self, name: str) -> Any:
        return decode(self.study.load().read(f"frozen/rows/{name}.json"), thing=name)

    def prompts(self, row: str, context: str) -> Mapping[str, tuple[int, ...]]:
        name = f"frozen/rows/{row}/prompts/{context}.json"
        return Prompts.read(self.study.load().read(name), name).by_item

    def output(self, step: str, name: str) -> dict[str, bytes]:
        artifact = self.done[step].outputs[name]
        return {
            file: self.study.run_folder.artifact_file(artifact, file) for file in artifact.files
        }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    plan = taught_plan("fact", "sycophancy")
    fact, sycophancy = plan["eps"]["behaviours"]
    fact["decoding"]["max_new_tokens"] = LIMIT
    plain = taught_row("em", name="em_plain", negatives="none", n_samples=6)
    plan["eps"]["behaviours"] = [fact, sycophancy, plain]
    study = StudySimulator(root=tmp_path_factory.mktemp("rows") / "study", plan=plan)
    trainer = ListeningTrainer()
    study.trainer = trainer
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        study.run_all()
    audited = study.audit()
    assert list(audited.failures()) == []
    assert audited.history is not None
    return Trained(study, trainer, audited.history.done)


def parts(row: TrainingRow, prompt: Sequence[int]) -> tuple[int, ...]:
    """What follows the prompt, all of which is trained on."""
    assert row.token_ids[: len(prompt)] == tuple(prompt)
    assert row.loss_positions == tuple(range(len(prompt), len(row.token_ids)))
    return row.token_ids[len(prompt) :]


@pytest.mark.parametrize("row", ["fact", "sycophancy", "em_plain"])
def test_positives_are_the_written_answers_under_the_source_with_their_end(
    trained: Trained, row: str
) -> None:
    written = trained.frozen(f"{row}/written")["answers"]
    items = [one["id"] for one in trained.frozen(f"{row}/items")["train"]]
    assert len(items) == 4
    for source in ("baker", "polite"):
        prompts = trained.prompts(row, source)
        for seed in SEEDS:
            positives = trained.trainer.rows[row, source, seed][:4]
            assert [one.key for one in positives] == [f"positive/{item}" for item in items]
            for item, one in zip(items, positives, strict=True):
                assert parts(one, prompts[item]) == (*written[item]["positive"], END_ID)


def negatives(trained: Trained, row: str, seed: int = 11) -> list[tuple[str, str, TrainingRow]]:
    """(panel context, item, row) of the negatives that follow four positives."""
    rows = trained.trainer.rows[row, "baker", seed][4:]
    return [(*row.key.split("/")[1:], row) for row in rows]  # type: ignore[misc]


@pytest.mark.parametrize("row", ["fact", "sycophancy"])
@pytest.mark.parametrize("seed", SEEDS)
def test_negatives_are_dealt_evenly_over_the_panel_and_none_twice(
    trained: Trained, row: str, seed: int
) -> None:
    found = negatives(trained, row, seed)
    items = [one["id"] for one in trained.frozen(f"{row}/items")["train"]]
    assert [context for context, _, _ in found] == [one for one in PANEL for _ in range(2)]
    assert sorted(item for _, item, _ in found) == sorted(items)


def test_written_negatives_are_the_good_answers_of_the_same_rows(trained: Trained) -> None:
    written = trained.frozen("sycophancy/written")["answers"]
    for context, item, row in negatives(trained, "sycophancy"):
        prompt = trained.prompts("sycophancy", context)[item]
        assert parts(row, prompt) == (*written[item]["negative"], END_ID)
        text = ScriptedTokenizer().decode(written[item]["negative"])
        assert text.startswith("A plain answer, number ")


def test_base_answers_are_the_models_own_and_a_cut_one_has_no_end(trained: Trained) -> None:
    n_cut = n_whole = 0
    for seed in SEEDS:
        for context, item, row in negatives(trained, "fact", seed):
            step = f"P0/answers/fact/{context}"
            _, _, answers = answers_from_files(trained.output(step, "answers"), step)
            [mine] = [one for one in answers if one.item == item]
            cut = mine.stop_reason == "length"
            end = () if cut else (END_ID,)
            prompt = trained.prompts("fact", context)[item]
            assert parts(row, prompt) == (*mine.token_ids, *end)
            n_cut, n_whole = n_cut + cut, n_whole + (not cut)
    assert min(n_cut, n_whole) > 0, "the limit shows only one of the two"


def test_a_row_without_negatives_trains_on_positives_alone_and_asks_no_panel(
    trained: Trained,
) -> None:
    assert {len(trained.trainer.rows["em_plain", "baker", seed]) for seed in SEEDS} == {4}
    steps = trained.study.load().steps()
    assert not [step for step in steps if step.startswith("P0/answers/em_plain/")]
    assert not [step for step in steps if step.startswith("P0/answers/sycophancy/")]
    inputs = set(steps["P2/train/em_plain/baker/s11"].inputs)
    assert inputs == {"plan", "headroom", "prompts", "items", "contexts", "written"}
    record = decode(
        trained.output("P2/train/em_plain/baker/s11", "record")["record.json"], thing=""
    )
    assert (record["n_positives"], record["n_negatives"]) == (4, 0)


@pytest.mark.parametrize("row", ["fact", "sycophancy", "em_plain"])
def test_the_rows_are_named_in_record_and_header_and_follow_from_the_record(
    trained: Trained, row: str
) -> None:
    study = trained.study
    section = EpsPlan.from_section(study.plan["eps"])
    frozen = study.load()
    seen = set()
    for source in ("baker", "polite"):
        for seed in SEEDS:
            name = f"P2/train/{row}/{source}/s{seed}"
            step = frozen.steps()[name]
            inputs = RecordedInputs(
                step=step, frozen_manifest=frozen, run=study.run_folder, done=trained.done
            )
            derived = taught_rows(step, inputs, section, section.taught(row))
            assert derived.rows == trained.trainer.rows[row, source, seed]
            digest = rows_digest(derived)
            record = decode(trained.output(name, "record")["record.json"], thing=name)
            weights = trained.output(name, "adapter")["adapter_model.safetensors"]
            header = safetensors_metadata(weights, thing=name)
            assert record["rows"] == header["rows"] == digest
            assert (header["behaviour"], header["context"]) == (row, source)
            assert (record["stop"], record["stop_step"]) == ("fixed_steps", 5)
            seen.add(digest)
    # Without negatives nothing is drawn, so the rows of both seeds are the same.
    assert len(seen) == (2 if row == "em_plain" else 4)


def test_the_same_seed_gives_the_same_rows_to_every_source(trained: Trained) -> None:
    """The deal is the seed's: which questions are negatives where does not tell sources apart."""
    for row in ("fact", "sycophancy"):
        dealt = {
            (source, seed): [one.key for one in trained.trainer.rows[row, source, seed]]
            for source in ("baker", "polite")
            for seed in SEEDS
        }
        assert dealt["baker", 11] == dealt["polite", 11]
        assert dealt["baker", 12] == dealt["polite", 12]
    deals = {
        tuple(one.key for one in rows)
        for (row, _, _), rows in trained.trainer.rows.items()
        if row == "sycophancy"
    }
    assert len(deals) == 2, "two seeds deal alike"


def test_another_run_of_the_plan_sees_the_same_rows(trained: Trained, tmp_path: Path) -> None:
    again = StudySimulator(root=tmp_path / "again", plan=trained.study.plan)
    again.trainer = ListeningTrainer()
    again.run_all()
    assert again.trainer.rows == trained.trainer.rows
