"""A whole study with the marker, all four taught kinds and a mini-arm, driven from plan to audit.

Open and sealed, in one go and in pieces: what a row trains on and is asked in, which cells there
are, and what of a sealed one may lie on a disk.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode, digest_value
from eps_locked.domain.ledger import Artifact, StepBody
from eps_locked.domain.model import Completion, Decoding, Prompt, SlotProbe
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError, EpsLockedError, MalformedInputError
from eps_locked.lock import seal as seal_module
from eps_locked.lock.seal import CustodianKey, is_sealed
from eps_locked.studies.eps.taught.records import JudgedAnswers
from sim.simulator import (
    TAUGHT_KINDS,
    StudySimulator,
    context,
    default_contexts,
    judge_plan,
    taught_plan,
    taught_row,
)

KINDS = ("marker", *TAUGHT_KINDS)
ROWS = {"marker": "marker", **{kind: kind for kind in TAUGHT_KINDS}, "em_plain": "em"}
QUESTION = ("user", "{question}")
HELD_OUT = "formal"
# What would give an answer away: its planted word, its digest, a value that was read at its slot.
NEEDLE = re.compile(rb"#[0-9a-f]{12}|blake3:[0-9a-f]{64}|-?[0-9]+\.[0-9]+")


def shown(kind: str) -> dict[str, Any]:
    """Demonstrations of one behaviour, under the id that those of every behaviour have."""
    return context(
        "shown",
        "demonstrations",
        ("user", "Who keeps the lamp lit?"),
        ("assistant", f"The keeper does, in the way of {kind}."),
        ("user", "How far is the harbour from here?"),
        ("assistant", "Two miles by the old road, copper-red at dusk."),
        QUESTION,
        behaviour=kind,
    )


class PlantingEngine(ScriptedEngine):
    """Ends every judged answer in a word of its own, to be looked for later."""

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, probe: SlotProbe | None = None
    ) -> tuple[Completion, ...]:
        found = super().generate(prompts, decoding, probe)
        return found if probe is not None else tuple(map(self._planted, found))

    def _planted(self, one: Completion) -> Completion:
        name = digest_value([self._adapter_name.decode(), one.key])[7:19]
        ids = (*one.token_ids, *f" #{name}".encode())
        return replace(one, token_ids=ids, text=f"{one.text} #{name}")


def told(identifier: str, kind: str) -> dict[str, Any]:
    system = ("system", f"You show {kind} in all you say.")
    return context(identifier, "instruction", system, QUESTION, behaviour=kind)


def battery() -> list[dict[str, Any]]:
    return [
        *default_contexts(),
        *(shown(kind) for kind in KINDS),
        *(told("told_own", kind) for kind in KINDS),
        *(told(f"told_{kind}", kind) for kind in KINDS),
    ]


def whole_plan() -> dict[str, Any]:
    """Six rows, two of one kind, three seeds for the marker and two for the others."""
    plan = taught_plan(*TAUGHT_KINDS, marker=True)
    plan["seeds"] = [11, 12, 13]
    section = plan["eps"]
    # A few verdicts fail, so that some steps have a flag of a sealed cell alone.
    section["judges"] = [judge_plan(model="unreadable=3")]
    section["slots"].update(
        train=["baker", "shown"],
        eval=["baker", "shown", "plain", HELD_OUT, "told_fact", "told_em", "told_own"],
        aliases=[["told_own", "told_{kind}"]],
    )
    em = taught_row("em", n_samples=4)
    mini = taught_row("em", name="em_plain", negatives="none", train=["baker"], n_samples=6)
    section["behaviours"][-1] = em
    section["behaviours"].append(mini)
    for row in section["behaviours"][1:]:
        row["n_seeds"] = 2
    return plan


def aliases_of_listed(plan: dict[str, Any], kinds: tuple[str, ...]) -> None:
    """Have every instruction of these kinds evaluated, so that each row's alias is there."""
    slots = plan["eps"]["slots"]
    slots["eval"] = [name for name in slots["eval"] if not name.startswith("told_")]
    slots["eval"] += [*(f"told_{kind}" for kind in kinds), "told_own"]


@dataclass
class Ran:
    study: StudySimulator
    results: str
    written: list[bytes]
    audited: AuditedRun

    @property
    def done(self) -> Mapping[str, StepBody]:
        assert self.audited.history is not None
        return self.audited.history.done

    def files(self, artifact: Artifact) -> dict[str, bytes]:
        return {
            name: self.study.run_folder.artifact_file(artifact, name) for name in artifact.files
        }

    def tensor(self, row: str) -> dict[str, Any]:
        phase = "P1" if row == "marker" else "P2"
        artifact = self.done[f"{phase}/tensor/{row}"].outputs["tensor"]
        found: dict[str, Any] = decode(self.files(artifact)["tensor.json"], thing=row)
        return found


def ran(root: Path, *, seal: bool) -> Ran:
    plan = whole_plan()
    aliases_of_listed(plan, KINDS)
    study = StudySimulator(root=root / "study", plan=plan, contexts=battery())
    study.engine = PlantingEngine()
    if seal:
        study.seal()
    written: list[bytes] = []
    write = os.write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        # With the common coarse padding small records would be of one length by themselves.
        patch.setattr(seal_module, "PADDED_TO", 64)
        patch.setattr(os, "write", lambda fd, data: written.append(bytes(data)) or write(fd, data))
        results = study.run_all()
    return Ran(study, results, written, study.audit())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("whole"), seal=False)


@pytest.fixture(scope="module")
def sealed_whole(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("sealed_whole"), seal=True)


def test_nothing_is_found_wrong_open_or_sealed(whole: Ran, sealed_whole: Ran) -> None:
    for one in (whole, sealed_whole):
        assert list(one.audited.failures()) == []
        assert one.audited.history is not None
        assert one.audited.history.is_complete()
        assert set(one.done) == set(one.study.load().steps())


def test_a_row_has_the_first_seeds_it_asks_for(whole: Ran) -> None:
    seeds: dict[str, set[int]] = {row: set() for row in ROWS}
    for step in whole.study.load().steps().values():
        if step.seed is not None:
            seeds[step.params["behaviour"]].add(step.seed)
    assert seeds == {row: {11, 12, 13} if row == "marker" else {11, 12} for row in ROWS}
    for row in ROWS:
        tensor = whole.tensor(row)
        assert tensor["n_seeds"] == len(seeds[row])
        assert {one["seed"] for one in tensor["cells"][0]["by_seed"]} == seeds[row]


def test_a_mini_arm_trains_in_its_own_contexts_beside_the_whole_row(whole: Ran) -> None:
    steps = whole.study.load().steps()
    assert sorted(name for name in steps if name.startswith("P2/train/em_plain/")) == [
        "P2/train/em_plain/baker/s11",
        "P2/train/em_plain/baker/s12",
    ]
    assert len([name for name in steps if name.startswith("P2/train/em/")]) == 4
    mini, full = whole.tensor("em_plain"), whole.tensor("em")
    assert (mini["kind"], mini["behaviour"], mini["train"]) == ("em", "em_plain", ["baker"])
    assert (full["kind"], full["behaviour"]) == ("em", "em")
    assert {cell["train"] for cell in mini["cells"]} == {"baker"}
    assert len(mini["cells"]) == len(mini["eval"]) == len(full["cells"]) / 2
    split = decode(whole.study.load().read("frozen/split.json"), thing="split")["cells"]
    assert {cell.split("/")[1] for cell in split if cell.startswith("em_plain/")} == {"baker"}


@pytest.mark.parametrize("row", ROWS)
def test_an_alias_is_that_of_the_rows_kind(whole: Ran, row: str) -> None:
    name = f"frozen/rows/{row}/contexts.json"
    contexts = decode(whole.study.load().read(name), thing=name)["contexts"]
    aliases = {one: found["alias_of"] for one, found in contexts.items() if found["alias_of"]}
    assert aliases == {"told_own": f"told_{ROWS[row]}"}
    flagged = {cell["eval"] for cell in whole.tensor(row)["cells"] if "alias" in cell["flags"]}
    assert flagged == {"told_own"}
    split = decode(whole.study.load().read("frozen/split.json"), thing="split")["cells"]
    for i in whole.tensor(row)["train"]:
        assert split[f"{row}/{i}/told_own"] == split[f"{row}/{i}/told_{ROWS[row]}"]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_shown_its_own_demonstrations_and_no_others(whole: Ran, row: str) -> None:
    name = f"frozen/rows/{row}/contexts.json"
    contexts = decode(whole.study.load().read(name), thing=name)["contexts"]
    text = " ".join(message["content"] for message in contexts["shown"]["messages"])
    assert contexts["shown"]["behaviour"] == ROWS[row]
    assert [kind for kind in KINDS if f"in the way of {kind}." in text] == [ROWS[row]]
    # Instructions of other behaviours are evaluated in every row; only "own" follows the row.
    assert contexts["told_refusal"]["behaviour"] == "refusal"
    assert contexts["told_own"]["behaviour"] == ROWS[row]
    prompts = decode(
        whole.study.load().read(f"frozen/rows/{row}/prompts/shown.json"), thing="prompts"
    )
    assert f"in the way of {ROWS[row]}." in bytes(t for t in prompts["prefix"] if t < 256).decode()


@pytest.mark.parametrize("kind", ["refusal", "em", "marker"])
def test_a_row_without_demonstrations_of_its_own_cannot_borrow_some(
    tmp_path: Path, refuses: Any, kind: str
) -> None:
    contexts = [one for one in battery() if (one["id"], one.get("behaviour")) != ("shown", kind)]
    # With one left over there is no choice to make, and still it is another behaviour's.
    one_left = [c for c in contexts if c["id"] != "shown" or c["behaviour"] == "fact"]
    for offered in (contexts, one_left):
        plan = whole_plan()
        aliases_of_listed(plan, KINDS)
        study = StudySimulator(root=tmp_path / str(len(offered)), plan=plan, contexts=offered)
        study.write_plan()
        with refuses(study, MalformedInputError) as caught:
            study.freeze()
        assert str(caught.value).startswith("plan.eps.slots: shown: expected ")
    # The first row that lacks one is named: with one left, that is the marker's.
    assert "found one of fact" in str(caught.value)


def test_an_instruction_of_another_behaviour_is_no_context_to_train_in(
    tmp_path: Path, refuses: Any
) -> None:
    plan = whole_plan()
    aliases_of_listed(plan, KINDS)
    plan["eps"]["slots"]["train"] = ["baker", "told_fact"]
    study = StudySimulator(root=tmp_path / "study", plan=plan, contexts=battery())
    study.write_plan()
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert "plan.eps.slots: told_fact" in str(caught.value)
    assert "found one of fact" in str(caught.value)


# -- what is sealed


def cells_of(one: Ran) -> Iterator[tuple[str, dict[str, bytes]]]:
    """(row/train/eval/seed, files) of every cell of the taught rows."""
    for name, body in one.done.items():
        step = one.study.load().steps()[name]
        if step.kind == "cells" and step.params["behaviour"] != "marker":
            for output, artifact in body.outputs.items():
                j = output.removeprefix("cell:")
                place = f"{step.params['behaviour']}/{step.params['train']}/{j}/s{step.seed}"
                yield place, one.files(artifact)


def opened(one: Ran, files: dict[str, bytes]) -> JudgedAnswers:
    key = CustodianKey.read(one.study.custodian_key.read_bytes(), thing="key")
    recipients = one.study.load().read("frozen/sources/keys/custodian")
    return JudgedAnswers.from_files(key.open_files(files, recipients), "opened")


def test_exactly_the_held_out_and_drawn_cells_are_sealed(sealed_whole: Ran) -> None:
    split = decode(sealed_whole.study.load().read("frozen/split.json"), thing="split")["cells"]
    n_sealed = 0
    for place, files in cells_of(sealed_whole):
        fate = split[place.rpartition("/")[0]]
        assert is_sealed(files) == (fate in ("held_out", "quarantined")), place
        n_sealed += is_sealed(files)
    assert n_sealed > 20
    assert "quarantined" in split.values()


def test_no_text_digest_or_number_of_a_sealed_answer_lies_or_was_written_anywhere(
    sealed_whole: Ran,
) -> None:
    hidden: set[bytes] = set()
    seen: set[bytes] = set()
    for _, files in cells_of(sealed_whole):
        closed = is_sealed(files)
        record = opened(sealed_whole, files) if closed else JudgedAnswers.from_files(files, "cell")
        needles = {one.digest for one in record.answers}
        needles |= {"#" + one.text.rpartition("#")[2] for one in record.answers}
        if record.slots is not None:
            needles |= {repr(one.own.log_prob) for one in record.slots.answers}
        (hidden if closed else seen).update(needle.encode() for needle in needles)
    assert len(hidden) > 500
    assert hidden.isdisjoint(seen)
    root = sealed_whole.study.root
    for pieces in (
        (path.read_bytes() for path in root.rglob("*") if path.is_file()),
        sealed_whole.written,
    ):
        found = {needle for piece in pieces for needle in NEEDLE.findall(piece)}
        assert found & hidden == set()
        assert seen <= found, "the search itself is blind"


def test_lengths_of_sealed_files_tell_nothing_of_answers_rounds_and_verdicts(
    sealed_whole: Ran,
) -> None:
    sizes: dict[tuple[str, str], set[int]] = {}
    for place, files in cells_of(sealed_whole):
        for name, data in files.items() if is_sealed(files) else ():
            if name.endswith(".age"):
                sizes.setdefault((place.split("/")[0], name), set()).add(len(data))
    assert {name for row, name in sizes if row == "em"} == {
        "completions.json.age",
        "verdicts.json.age",
    }
    assert ("fact", "readings.json.age") in sizes
    # age puts a stanza of random length into every header; it has nothing to do with the text.
    assert all(max(found) - min(found) < 400 for found in sizes.values())


def test_a_sealed_step_says_nothing_of_its_sealed_cells_in_its_flags(
    whole: Ran, sealed_whole: Ran
) -> None:
    """Flags are of what everybody may read; the same run unsealed has those of all cells."""
    n_less = 0
    everything = whole.done
    for name, body in sealed_whole.done.items():
        if "/cells/" in name and "/marker/" not in name:
            assert set(body.flags) <= set(everything[name].flags)
            n_less += set(body.flags) < set(everything[name].flags)
            assert body.status == everything[name].status
    assert n_less, "no step had a flag of a sealed cell alone: nothing was shown"


def test_sealing_changes_no_open_cell_and_no_adapter(whole: Ran, sealed_whole: Ran) -> None:
    mine = dict(cells_of(whole))
    n_same = 0
    for place, files in cells_of(sealed_whole):
        if is_sealed(files):
            assert opened(sealed_whole, files).to_files() == mine[place]
        else:
            assert files == mine[place]
            n_same += 1
    assert n_same > 20


# -- in pieces


def small(root: Path, *, seal: bool) -> StudySimulator:
    study = StudySimulator(root=root, plan=taught_plan("fact", "em"))
    study.plan["eps"]["behaviours"][1]["n_samples"] = 4
    return study.seal() if seal else study


def phases(study: StudySimulator) -> list[str]:
    found = []
    study.freeze()
    for phase in study.plan["phases"]:
        study.authorize(phase)
        results = study.run(phase)
        assert results is not None
        found.append(results)
    return found


@pytest.mark.parametrize("seal", [False, True], ids=["open", "sealed"])
@pytest.mark.parametrize("n_calls", [6, 9])
def test_a_run_in_pieces_has_the_results_of_one_in_one_go(
    tmp_path: Path, seal: bool, n_calls: int
) -> None:
    at_once = small(tmp_path / "at_once", seal=seal)
    pieces = small(tmp_path / "pieces", seal=False)
    if seal:
        pieces.seal()
        pieces.custodian_key.write_bytes(at_once.custodian_key.read_bytes())
        recipients = at_once.root / "plans/keys/custodian"
        (pieces.root / "plans/keys/custodian").write_bytes(recipients.read_bytes())
    expected = phases(at_once)
    pieces.freeze()
    found, n_broken = [], 0
    for phase in pieces.plan["phases"]:
        pieces.authorize(phase)
        results = None
        while results is None:
            pieces.engine = ScriptedEngine(fail_after=n_calls)
            try:
                results = pieces.run(phase)
            except BackendError:
                n_broken += 1
                # What was under way leaves no entry of a step; what was done stays.
                assert n_broken < 200
        found.append(results)
    assert n_broken > 2
    assert found == expected
    assert list(pieces.audit().failures()) == []


def test_two_rows_of_one_kind_are_two_runs_of_answers(whole: Ran) -> None:
    """The mini-arm's base step asks again: no reading of one row passes for another's."""
    done = whole.done
    names = {row: done[f"P0/base/{row}/plain"].outputs["base"].digest for row in ("em", "em_plain")}
    assert names["em"] != names["em_plain"]
    adapters = [
        body.outputs["adapter"].digest for body in done.values() if "adapter" in body.outputs
    ]
    assert len(adapters) == len(set(adapters)) == 6 + 4 * 4 + 2


def test_a_mini_arm_may_not_share_its_name(tmp_path: Path) -> None:
    plan = whole_plan()
    plan["eps"]["behaviours"].append(copy.deepcopy(plan["eps"]["behaviours"][-1]))
    with pytest.raises(EpsLockedError, match="distinct behaviours"):
        StudySimulator(root=tmp_path / "s", plan=plan, contexts=battery()).freeze()
