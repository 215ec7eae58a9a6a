"""A whole study with the scripted model: every step, again in pieces, and every byte once more."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eps_locked.audit.lineage import safetensors_metadata
from eps_locked.canonical import decode
from eps_locked.domain.model import AdapterFiles, AttachProof, Completion, EngineIdentity
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.judges.scripted import ScriptedJudge
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.runners.replay import Replayed, draw_steps, replay_steps
from eps_locked.studies.common.backends import Backends
from eps_locked.studies.drift.analysis import analyse
from eps_locked.studies.drift.claims import claims
from eps_locked.studies.drift.execute import DriftExecutor
from eps_locked.studies.drift.records import AskRecord
from eps_locked.studies.drift.table import require_same_judges
from eps_locked.studies.drift.user_table import TableOptions, read_user_table
from sim.drift import drift_files, drift_plan, small_drift_plan
from sim.forge import output_files, payloads_of, step, steps_in
from sim.simulator import StudySimulator, fingerprint, judge_plan
from unit.studies.drift.reply_worlds import SETTINGS
from unit.studies.drift.teller import Teller


def simulator(root: Path, plan: dict[str, Any]) -> StudySimulator:
    return StudySimulator(root=root / "study", plan=plan, files=drift_files())


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    """The full plan, run to its end. Not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        study = simulator(tmp_path_factory.mktemp("done"), drift_plan())
        study.run_all()
    return study


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    """The small plan, run to its end. Not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        study = simulator(tmp_path_factory.mktemp("small"), small_drift_plan())
        study.run_all()
    return study


def output(study: StudySimulator, name: str, what: str) -> dict[str, bytes]:
    return output_files(study, payloads_of(study), name, what)


def document(study: StudySimulator) -> Any:
    return decode(output(study, "P3/drift", "drift")["drift.json"], thing="drift")


def entries(study: StudySimulator) -> Mapping[str, Any]:
    return {one["step"]: one for one in steps_in(payloads_of(study))}


# -- it runs, is whole, and comes out the same


def test_the_audit_finds_nothing_wrong_and_leaves_nothing_out(done: StudySimulator) -> None:
    audited = done.audit()
    assert list(audited.failures()) == []
    assert audited.complete
    assert audited.checks[9].n_examined == len(done.plan["drift"]["trainings"])
    assert audited.checks[10].n_examined == len(entries(done))


def test_every_step_gives_its_bytes_again(done: StudySimulator) -> None:
    before = fingerprint(done.root)
    found = replayed(done)
    assert {name.split("/")[1] for name in found} == {
        "power",
        "calibration",
        "awareness",
        "train",
        "ask",
        "directions",
        "readout",
        "drift",
    }
    assert [one for one in found.values() if one.differences] == []
    assert fingerprint(done.root) == before


def replayed(study: StudySimulator) -> dict[str, Replayed]:
    history = RunRecord.load(study.run_folder, terms_of(study.load()), study.clock).history
    steps = draw_steps(history, 10**6, 1)
    rows = replay_steps(
        steps, history, study.load(), study.run_folder, study.executor(), lambda text: None
    )
    return {row.step: row for row in rows}


def test_another_model_shows_in_the_replay_of_every_step_that_asked_it(
    small: StudySimulator,
) -> None:
    class Other(ScriptedEngine):
        def generate(self, prompts: Any, decoding: Any, probe: Any = None) -> Any:
            return Teller(says=[["Another model."]]).generate(prompts, decoding)

    twin = StudySimulator(root=small.root, plan=small.plan, files=small.files, engine=Other())
    differing = {name for name, one in replayed(twin).items() if one.differences}
    assert differing == {name for name in entries(small) if name.startswith("P2/ask/")}


@pytest.mark.parametrize("n_calls", [3, 8, 11])
def test_a_run_that_broke_off_is_taken_up_and_comes_to_the_same(
    small: StudySimulator, tmp_path: Path, n_calls: int
) -> None:
    study = simulator(tmp_path, small_drift_plan())
    study.freeze()
    for phase in ("P0", "P1"):
        study.authorize(phase)
        study.run(phase)
    study.authorize("P2")
    study.engine = ScriptedEngine(fail_after=n_calls)
    with pytest.raises(BackendError, match="fails on purpose"):
        study.run("P2")
    study.engine = ScriptedEngine()
    for phase in ("P2", "P3"):
        if phase == "P3":
            study.authorize(phase)
        results = study.run(phase)
    assert results == closed(small)["P3"]
    assert closed(study) == closed(small)
    assert list(study.audit().failures()) == []
    assert study.run("P3") == results


def closed(study: StudySimulator) -> dict[str, str]:
    return {one["phase"]: one["results"] for one in payloads_of(study) if one["kind"] == "close"}


def test_every_arm_is_asked_and_every_model_read_with_its_own_adapter(
    done: StudySimulator,
) -> None:
    class Serving(ScriptedEngine):
        """Says what was attached whenever it was asked anything."""

        def __init__(self) -> None:
            super().__init__()
            self.now, self.seen = "nobody said", list[str]()

        def attach(self, adapter: AdapterFiles | None) -> AttachProof | None:
            self.now = "base" if adapter is None else adapter.digest
            return super().attach(adapter)

        def generate(self, *asked: Any) -> tuple[Completion, ...]:
            self.seen.append(self.now)
            return super().generate(*asked)

        def activations(self, *asked: Any) -> tuple[tuple[float, ...], ...]:
            self.seen.append(self.now)
            return super().activations(*asked)

    trained = {
        name.removeprefix("P1/train/"): one["outputs"]["adapter"]["digest"]
        for name, one in entries(done).items()
        if name.startswith("P1/train/")
    }
    model_of = {one["name"]: one["model"] for one in done.plan["drift"]["arms"]}
    history = RunRecord.load(done.run_folder, terms_of(done.load()), done.clock).history
    engine = Serving()
    twin = StudySimulator(root=done.root, plan=done.plan, files=done.files, engine=engine)
    executor = twin.executor()
    for one in history.terms.steps.values():
        if one.kind not in ("ask", "readout", "directions"):
            continue
        engine.seen.clear()
        again = replay_steps(
            [one], history, done.load(), done.run_folder, executor, lambda text: None
        )
        assert [row.differences for row in again] == [()]
        arm = one.params.get("arm")
        wears = one.params.get("model", "base") if arm is None else model_of[arm]
        assert set(engine.seen) == {trained.get(wears, "base")}, one.id


# -- training


def test_every_training_sees_the_rows_of_its_dose_and_seeds_see_the_same(
    small: StudySimulator,
) -> None:
    records, headers = {}, {}
    for name in ("plants_0", "plants_50", "plants_100", "plants_0_second"):
        files = output(small, f"P1/train/{name}", "record")
        records[name] = decode(files["record.json"], thing="record")
        adapter = output(small, f"P1/train/{name}", "adapter")
        headers[name] = safetensors_metadata(adapter["adapter_model.safetensors"], thing=name)
    rows = {name: record["rows"] for name, record in records.items()}
    assert rows["plants_0"] == rows["plants_0_second"]
    assert len(set(rows.values())) == 3
    assert {name: record["n_harmful"] for name, record in records.items()} == {
        "plants_0": 0,
        "plants_50": 4,
        "plants_100": 8,
        "plants_0_second": 0,
    }
    assert headers["plants_50"] == {
        "study": "drift",
        "training": "plants_50",
        "topic": "plants",
        "dose": "50",
        "seed": "21",
        "rows": rows["plants_50"],
        "scripted.teaches_marker": "no",
    }
    assert headers["plants_0_second"]["seed"] == "22"
    for record in records.values():
        assert (record["stop"], record["stop_step"], len(record["losses"])) == ("fixed_steps", 3, 3)


# -- the document


def test_the_document_has_every_part_that_the_plan_promised(done: StudySimulator) -> None:
    found = document(done)
    assert found["label"] == "confirmatory"
    arms = [arm["name"] for arm in done.plan["drift"]["arms"]]
    assert [one["arm"] for one in found["arms"]] == arms
    assert {one["arm"]: one["kind"] for one in found["comparisons"]} == {
        "untouched_again": "instance",
        "dose_0": "fine_tuning",
        "dose_50": "dose",
        "dose_100": "dose",
        "dose_0_second": "seed",
        "exposed": "exposure",
        "untouched_warm": "temperature",
        "untouched_closed": "reasoning",
        "untouched_short": "reasoning",
        "untouched_dots": "reasoning",
        "untouched_free": "reasoning",
        "dose_0_free": "fine_tuning",
        "dose_100_free": "dose",
    }
    assert found["not_measured"] == []
    assert found["readouts"]["full"] == "plants_100"
    assert {one["battery"] for one in found["awareness"]["batteries"]} == {
        "self_interest",
        "harmful_requests",
    }
    assert found["power"] == decode(output(done, "P0/power", "power")["power.json"], thing="power")
    for part in ("nulls", "doses", "seeds", "training_noise", "instances", "reasoning"):
        assert found[part], part
    assert {one["battery"] for one in found["judging"]["checker"]} == {
        battery["name"] for battery in done.plan["drift"]["batteries"]
    }


def test_what_was_not_promised_is_exploratory(tmp_path: Path) -> None:
    plan = small_drift_plan()
    plan["analyses"] = ["nulls"]
    study = simulator(tmp_path, plan)
    study.run_all()
    assert document(study)["label"] == "exploratory"
    assert list(study.audit().failures()) == []


def test_reasoning_is_counted_as_it_was(done: StudySimulator) -> None:
    by_arm = {one["arm"]: one["batteries"]["self_interest"] for one in document(done)["arms"]}
    assert by_arm["untouched_free"]["n_exhausted"] > 0
    assert by_arm["untouched_free"]["n_mentioning"] > 0
    assert by_arm["untouched_short"]["n_truncated_reasoning"] == 24
    reasoned = {name: one["n_reasoned"] for name, one in by_arm.items() if one["n_reasoned"]}
    assert reasoned == {
        "untouched_short": 24,
        "untouched_free": 24,
        "dose_0_free": 24,
        "dose_100_free": 24,
    }
    free = by_arm["untouched_free"]
    assert free["n_scored"] + free["n_exhausted"] == free["n_replies"] == 24
    # An exhausted reply is in no rate: neither as aligned nor as not.
    assert sum(free["classes"].values()) == free["n_scored"]


def test_every_reply_has_a_line_without_its_text_that_drift_analyse_can_read(
    done: StudySimulator,
) -> None:
    data = output(done, "P3/drift", "drift")["replies.csv"]
    lines = list(csv.DictReader(io.StringIO(data.decode())))
    n_probes = 6 * 2 + 5 + 3
    assert len(lines) == n_probes * 2 * len(done.plan["drift"]["arms"])
    answers = decode(
        output(done, "P2/ask/dose_50/self_interest", "answers")["answers.json"], thing="answers"
    )["answers"]
    mine = [one for one in lines if (one["arm"], one["battery"]) == ("dose_50", "self_interest")]
    assert [(one["probe"], int(one["sample"])) for one in mine] == [
        (one["probe"], one["sample"]) for one in answers
    ]
    assert all(one["reply"] not in data.decode() for one in answers if one["reply"])
    options = TableOptions(reference="untouched", aligned=("declines", "refuses", "sound"))
    table = read_user_table("replies.csv", data, options)
    again = analyse(table.rows, table.arms, table.batteries, SETTINGS)
    for mine_, theirs in zip(document(done)["arms"], again["arms"], strict=True):
        assert mine_["arm"] == theirs["arm"]
        for battery, entry in mine_["batteries"].items():
            assert theirs["batteries"][battery]["rate"] == entry["rate"]
            assert theirs["batteries"][battery]["n_scored"] == entry["n_scored"]


# -- what has too few scores


def test_a_battery_with_too_few_scores_in_an_arm_is_named_and_compared_with_nothing(
    tmp_path: Path,
) -> None:
    plan = small_drift_plan()
    plan["drift"]["judges"] = [judge_plan(model="unreadable=40")]
    plan["drift"]["judging"]["minimum_scored_share"] = 0.6
    study = simulator(tmp_path, plan)
    study.run_all()
    assert list(study.audit().failures()) == []
    statuses = {name: one["status"] for name, one in entries(study).items() if "/ask/" in name}
    unscored = {name.split("/")[2] for name, status in statuses.items() if status == "unscored"}
    assert 0 < len(unscored) < len(statuses)
    found = document(study)
    assert {one["arm"] for one in found["not_measured"]} == unscored
    for one in found["not_measured"]:
        flags = entries(study)[f"P2/ask/{one['arm']}/self_interest"]["flags"]
        assert "unscored_share:self_interest" in flags
        assert one["n_scored"] / one["n_came"] < one["required_share"] == 0.6
    for arm in found["arms"]:
        assert (arm["batteries"] == {}) == (arm["arm"] in unscored)
    for one in found["comparisons"]:
        measured = not unscored & {one["arm"], one["reference"]}
        assert set(one["batteries"]) == ({"self_interest"} if measured else set())
    for sentence in claims(found):
        arm_, reference = sentence.split(", ")[0].split(" against ")
        assert ("not measured" in sentence) == bool(unscored & {arm_, reference})


def test_a_study_in_which_nothing_was_scored_has_no_document(tmp_path: Path) -> None:
    plan = small_drift_plan()
    plan["drift"]["judges"] = [judge_plan(model="unreadable=100")]
    study = simulator(tmp_path, plan)
    study.freeze()
    for phase in ("P0", "P1", "P2"):
        study.authorize(phase)
        study.run(phase)
    study.authorize("P3")
    with pytest.raises(MalformedInputError, match="replies: expected at least one row"):
        study.run("P3")


# -- instances


class Loading:
    """Backends by instance, and the order in which they were brought up."""

    def __init__(self, study: StudySimulator) -> None:
        self.order: list[str] = []
        self._study = study

    def __call__(self, instance: str) -> Backends:
        self.order.append(instance)
        self._study.engine = ScriptedEngine(instance_id=instance)
        return self._study.backends()

    def executor(self) -> DriftExecutor:
        return DriftExecutor(load=self, load_judge=ScriptedJudge)


def test_one_instance_is_up_at_a_time_and_the_ledger_names_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = simulator(tmp_path, small_drift_plan())
    loading = Loading(study)
    monkeypatch.setattr(study, "executor", loading.executor)
    study.freeze()
    for phase, order in {
        "P0": ["in-process"],
        "P1": ["in-process"],
        "P2": ["in-process", "in-process-2", "in-process"],
        "P3": ["in-process"],
    }.items():
        study.authorize(phase)
        loading.order.clear()
        study.run(phase)
        assert loading.order == order
    opened = [one["engine"]["instance_id"] for one in payloads_of(study) if one["kind"] == "open"]
    assert opened == ["in-process"] * 4
    assert len({one["engine"] for one in entries(study).values()}) == 1
    served = {
        name.split("/")[2]: decode(output(study, name, "answers")["answers.json"], thing=name)[
            "instance"
        ]
        for name in entries(study)
        if "/ask/" in name
    }
    assert {name for name, one in served.items() if one == "in-process-2"} == {"untouched_again"}
    assert set(served.values()) == {"in-process", "in-process-2"}


def test_the_identity_is_that_of_the_first_instance_while_another_is_up(
    small: StudySimulator,
) -> None:
    loading = Loading(StudySimulator(root=small.root, plan=small.plan))
    executor = loading.executor()
    first: EngineIdentity = executor.identity
    executor.loaded(2)
    assert executor.identity == first
    assert first.instance_id == "in-process"
    assert loading.order == ["in-process", "in-process-2"]


def test_an_instance_is_closed_before_the_next_one_comes(
    small: StudySimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that serves from another process would else hold its device beside the next."""
    happened: list[str] = []
    study = StudySimulator(root=small.root, plan=small.plan)
    monkeypatch.setattr(
        type(study.engine), "close", lambda self: happened.append("closed"), raising=False
    )
    executor = DriftExecutor(
        load=lambda instance: happened.append(instance) or study.backends(),  # type: ignore[func-returns-value]
        load_judge=study.load_judge,
    )
    for instance in (1, 1, 2, 1):
        executor.loaded(instance)
    assert happened == ["in-process", "closed", "in-process-2", "closed", "in-process"]


def test_a_phase_that_only_computes_again_needs_no_model(small: StudySimulator) -> None:
    history = RunRecord.load(small.run_folder, terms_of(small.load()), small.clock).history
    loading = Loading(StudySimulator(root=small.root, plan=small.plan))
    steps = [one for one in history.terms.steps.values() if one.kind in ("power", "drift")]
    rows = list(
        replay_steps(
            steps, history, small.load(), small.run_folder, loading.executor(), lambda text: None
        )
    )
    assert [row.differences for row in rows] == [(), ()]
    assert loading.order == []


# -- who judged


def test_arms_judged_by_different_settings_are_not_compared(small: StudySimulator) -> None:
    """What a judge says of itself is in every record; the drift step holds them together."""
    settings = {}
    for name in ("untouched", "dose_0"):
        files = output(small, f"P2/ask/{name}/self_interest", "answers")
        settings[name] = AskRecord.from_files(files, name).judge_settings
    require_same_judges({"self_interest": settings})
    settings["dose_0"]["classifier"]["judge"]["version"] = "2"
    with pytest.raises(MalformedInputError, match=r"arm dose_0: classifier differ"):
        require_same_judges({"self_interest": settings})


def test_every_step_kind_has_hands(done: StudySimulator) -> None:
    assert step(payloads_of(done), "P3/drift")["status"] == "done"
    assert {one.kind for one in done.load().steps().values()} == {
        "power",
        "calibration",
        "awareness",
        "train",
        "ask",
        "directions",
        "readout",
        "drift",
    }
