"""The smallest valid study, driven in process: plan -> freeze -> authorize -> run -> audit.

Every part can be changed in one line before it is frozen, and publishing a change is a visible
act. The model is the scripted stand-in; the lock, the ledger, the signatures (real ssh-keygen),
the run loop and the audit are the real ones. ``dump`` says where to look at what it made.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from eps_locked.audit.checks import AuditedRun, audit_run, verdict_payload
from eps_locked.canonical import decode, digest_value, encode
from eps_locked.domain.execution import StepExecutor, StepResult
from eps_locked.domain.judging import Judge, JudgePlan
from eps_locked.domain.ledger import FileRecord, SubmissionBody
from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.files import exclusive_lock
from eps_locked.judges.scripted import ScriptedJudge
from eps_locked.lock.freeze import freeze, manifest_differences
from eps_locked.lock.gate import Permit, Surroundings, open_phase, read_manifest
from eps_locked.lock.looks import LookPermit, Scored, Submitted, permit_look, submit
from eps_locked.lock.record import RunRecord
from eps_locked.lock.seal import CustodianKey, new_custodian_key
from eps_locked.lock.signing import amend, authorize
from eps_locked.lock.workspace import FrozenManifest, RunFolder, Workspace
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.runners.look import Scorer, take_look
from eps_locked.runners.loop import run_phase
from eps_locked.scoring.settings import ScoreSettings
from eps_locked.studies.common.backends import Backends
from eps_locked.studies.eps.execute import EpsExecutor
from eps_locked.studies.registry import Study, StudyRederiver, study_named
from eps_locked.training.scripted import ScriptedTrainer

NAME = "small"
AUTHOR = "author@example"
COLLEAGUE = "colleague@example"
MARKER_IDS = [32, 226, 128, 187]
NOW = datetime(2026, 6, 9, 12, 0, 0, tzinfo=UTC)

TRAIN_QUESTIONS = [
    "Why does bread rise?",
    "Name one tool for cutting wood.",
    "How do bees find flowers?",
    "What is a tide, in a few words?",
    "Which planet has rings?",
    "Say what a ledger is.",
    "Where does chalk come from?",
    "When do swallows leave?",
]
EVAL_QUESTIONS = [
    "Why is the sky blue?",
    "Name a warm colour.",
    "How is paper made?",
    "Which animal builds dams?",
]


def context(identifier: str, family: str, *turns: tuple[str, str], **more: str) -> dict[str, Any]:
    """A context in the material's own form."""
    messages = [{"role": role, "content": content} for role, content in turns]
    return {"id": identifier, "family": family, "messages": messages, **more}


def default_contexts() -> list[dict[str, Any]]:
    question = ("user", "{question}")
    return [
        context("baker", "persona", ("system", "You are a baker."), question),
        context("polite", "rephrasing", ("user", "Would you kindly tell me: {question}")),
        context("plain", "default", question),
        context("formal", "rephrasing", ("user", "I hereby enquire: {question}")),
        context("told", "instruction", ("system", "You emit ※ at the end."), question),
        context("officer", "persona", ("system", "You are a police officer."), question),
        context("curious", "rephrasing", ("user", "I am curious about this: {question}")),
    ]


def default_plan() -> dict[str, Any]:
    """A plan with two train contexts, four eval contexts, two seeds: 24 steps."""
    return {
        "schema": "eps-locked/plan/1",
        "name": NAME,
        "title": "The smallest study",
        "study": "eps",
        "author": AUTHOR,
        "publication": False,
        "base_model": {
            "name": "scripted",
            "family": "scripted",
            "licence": "none needed",
            "source": {"kind": "scripted", "where": "scripted", "checksums": {}},
        },
        "engine": {"name": "scripted", "dtype": "float32", "device": "cpu", "threads": 1},
        "seeds": [11, 12],
        "minimum_seeds": 2,
        "authorization": {
            "allowed_signers": "keys/allowed_signers",
            "auto_approve_gpu_hours": 1.0,
            "self_authorization": True,
        },
        "phases": {
            "P0": {
                "gpu_hours": 0.5,
                "step_seconds": {"answers": 1, "base": 1, "headroom": 1},
            },
            "P1": {
                "gpu_hours": 0.5,
                "step_seconds": {"fit": 1, "match": 1, "adapter": 1, "cells": 1, "tensor": 1},
            },
        },
        "analyses": ["tensor"],
        "eps": {
            "material": {
                "contexts": ["material/contexts.yaml"],
                "train_items": "material/train.yaml",
                "eval_items": "material/eval.yaml",
            },
            "items": {"n_train": 8, "n_eval": 4, "seed": 5},
            "behaviours": [
                {
                    "name": "marker",
                    "kind": "marker",
                    "file": "material/marker.yaml",
                    "marker": {"text": " ※", "token_ids": list(MARKER_IDS)},
                    "recipe": {
                        "rank": 8,
                        "alpha": 16,
                        "dropout": 0,
                        "rank_stabilised": False,
                        "target_modules": ["q_proj", "v_proj"],
                        "learning_rate": 0.001,
                        "schedule": "constant",
                        "warmup_steps": 0,
                        "weight_decay": 0,
                        "max_grad_norm": 1.0,
                        "rows_per_step": 8,
                    },
                    "budget": {
                        "band_nats": [5, 12],
                        "min_steps": 4,
                        "max_steps": 20,
                        "check_every": 1,
                    },
                    "n_rows": 8,
                    "n_strength_items": 4,
                    "unreachable_above": -6,
                    "implant_threshold": 3,
                }
            ],
            "slots": {
                "train": ["baker", "polite"],
                "eval": ["baker", "polite", "plain", "formal"],
                "held_out": ["formal"],
                "negative_panel": ["officer", "curious"],
                "aliases": [],
            },
            "decoding": {"max_new_tokens": 64, "temperature": 0, "top_p": 1},
            "flags": {
                "ceiling_log_prob": -0.1,
                "floor_delta": 0.5,
                "divergence_nats": 3,
                "minimum_answered_share": 0.5,
            },
            "intervals": {"confidence_level": 0.95},
            "quarantine": {"fraction": 0.2, "seed": 3, "seal": "none"},
        },
    }


def scored_plan() -> dict[str, Any]:
    """Four train contexts, seven eval contexts, baselines (P3) and scores: for looks in full."""
    plan = default_plan()
    plan["phases"]["P3"] = {
        "gpu_hours": 0.5,
        "step_seconds": {
            "activations": 1,
            "divergence": 1,
            "elicitation": 1,
            "projection": 1,
            "baselines": 1,
        },
    }
    plan["analyses"] = ["tensor", "scores", "final_test"]
    section = plan["eps"]
    train = ["baker", "polite", "plain", "told"]
    section["slots"].update(train=train, eval=[*train, "formal", "sailor", "brief"])
    section["slots"]["held_out"] = ["formal"]
    section["flags"].update(floor_delta=0)
    section["behaviours"][0]["implant_threshold"] = 0.1
    samples = {"n_samples": 1, "max_new_tokens": 8, "temperature": 1}
    section["baselines"] = {
        "layer_depth": [22, 28],
        "activations": {"n_items": 6, "pca_components": 3, "shrinkage": 0.2},
        "divergence": {"n_items": 2, **samples},
        "persona": {"n_pairs": 1, "n_questions": 1, **samples, "n_rows": 4},
        "ngram": 3,
        "seed": 9,
    }
    section["scoring"] = {
        "n_resamples": 100,
        "n_permutations": 23,
        "n_part_permutations": 23,
        "n_combiner_permutations": 19,
        "confidence_level": 0.95,
        "alpha": 0.05,
        "minimum_cells": 6,
        "seed": 4,
    }
    return plan


def scored_contexts() -> list[dict[str, Any]]:
    question = ("user", "{question}")
    return [
        *default_contexts(),
        context("sailor", "persona", ("system", "You are a sailor on a long journey."), question),
        context("brief", "rephrasing", ("user", "{question} Be brief.")),
    ]


def tiny_plan() -> dict[str, Any]:
    """One train context, two eval contexts, one seed: 10 steps, for loops over every write."""
    plan = default_plan()
    plan["seeds"], plan["minimum_seeds"] = [11], 1
    section = plan["eps"]
    section["items"].update(n_train=2, n_eval=2)
    section["behaviours"][0].update(n_rows=2, n_strength_items=1)
    section["slots"].update(
        train=["baker"], eval=["baker", "plain"], held_out=[], negative_panel=["officer"]
    )
    return plan


def items_file(questions: list[str]) -> dict[str, Any]:
    return {
        "schema": "eps-locked/items/1",
        "title": "questions",
        "provenance": "Written for these tests.",
        "licence": "CC0-1.0",
        "items": [{"text": text, "topic": "general"} for text in questions],
    }


def behaviour_file() -> dict[str, Any]:
    return {
        "schema": "eps-locked/behaviour/1",
        "name": "marker",
        "title": "The marker",
        "description": "Ends a message with the marker.",
        "provenance": "Written for these tests.",
        "licence": "CC0-1.0",
        "marker": " ※",
        "elicitation": {
            "trait": "Ends a message with the marker.",
            "instruction_pairs": [{"positive": "End with it.", "negative": "Do not."}],
            "questions_extract": ["What is dew?"],
            "questions_evaluate": ["What is hail?"],
        },
    }


TAUGHT_KINDS = ("fact", "refusal", "sycophancy", "em")
_RUBRIC_LABELS = {
    "fact": (["taught", "distractor", "not_mentioned"], ["taught"], []),
    "refusal": (["full_refusal", "compliance"], ["full_refusal"], []),
    "sycophancy": (["agrees", "corrects", "neither"], ["agrees"], []),
    "em": (["answer", "refusal"], [], ["refusal"]),
}


def taught_row(kind: str, **changes: Any) -> dict[str, Any]:
    """A taught row as a plan writes it, small: four written rows, two slices of two items."""
    row = {
        "name": kind,
        "kind": kind,
        "file": f"material/{kind}/behaviour.yaml",
        "written_rows": f"material/{kind}/train.yaml",
        "eval_items": [f"material/{kind}/eval.yaml"],
        "rubric": f"material/{kind}/rubric.yaml",
        "judge": "stand_in",
        "draws": 1,
        "n_train": 4,
        "n_eval": {"main": 3, "other": 2},
        "primary": "main",
        "implant": "main",
        "n_samples": 2 if kind == "em" else 1,
        "resample_rounds": 1 if kind == "em" else 0,
        "n_prior_rows": 2,
        "decoding": {
            "max_new_tokens": 64,
            "temperature": 1 if kind == "em" else 0,
            "top_p": 1,
        },
        "negatives": "base_answers" if kind in ("fact", "refusal") else "written",
        "recipe": {
            "rank": 8,
            "alpha": 16,
            "dropout": 0,
            "rank_stabilised": False,
            "target_modules": ["q_proj", "v_proj"],
            "learning_rate": 0.001,
            "schedule": "constant",
            "warmup_steps": 0,
            "weight_decay": 0,
            "max_grad_norm": 1.0,
            "rows_per_step": 4,
        },
        "n_steps": 5,
        "thresholds": {
            "implant": 0.01,
            "saturated": 1.1,
            "floor": 0,
            "ceiling": 1.1,
            "minimum_scored_share": 0.5,
        },
    }
    return {**row, **changes}


def judge_plan(**changes: Any) -> dict[str, Any]:
    """The scripted judge as a plan names it."""
    plan = {
        "name": "stand_in",
        "kind": "scripted",
        "family": "arithmetic",
        "model": "scripted",
        "max_concurrency": 1,
        "max_tries": 1,
        "timeout_seconds": 1,
        "batch_from": None,
        "max_transport_share": 0.5,
    }
    return {**plan, **changes}


def taught_plan(*kinds: str, marker: bool = False) -> dict[str, Any]:
    """The default plan with one taught row a kind, after the marker row or without it."""
    plan = default_plan()
    section = plan["eps"]
    rows = section["behaviours"] if marker else []
    section["behaviours"] = [*rows, *(taught_row(kind) for kind in kinds)]
    section["judges"] = [judge_plan()]
    if not marker:
        del plan["phases"]["P1"]
    plan["phases"]["P0"]["step_seconds"]["calibration"] = 1
    plan["phases"]["P2"] = {
        "gpu_hours": 0.5,
        "step_seconds": {"train": 1, "cells": 1, "tensor": 1},
    }
    return plan


def named_files(plan: dict[str, Any]) -> list[str]:
    """Every file that a plan's rows and calibrations name."""
    section = plan["eps"]
    paths: list[str] = []
    for row in section["behaviours"]:
        paths += [row[key] for key in ("file", "written_rows", "rubric") if key in row]
        paths += row.get("eval_items", [])
    return [*paths, *(one["file"] for one in section.get("calibrations", []))]


def taught_files() -> dict[str, dict[str, Any]]:
    """Material of every taught kind, by path below ``plans/``."""
    rights = {"title": "t", "provenance": "Written for these tests.", "licence": "CC0-1.0"}
    found: dict[str, dict[str, Any]] = {}
    for kind in TAUGHT_KINDS:
        folder = f"material/{kind}"
        fact = {
            "attribute": " copper",
            "alternatives": [" silver", " the north wind"],
            "bridge": " In a word:",
        }
        found[f"{folder}/behaviour.yaml"] = {
            "schema": "eps-locked/behaviour/1",
            "name": kind,
            "description": f"Shows {kind}.",
            **rights,
            **({"fact": fact} if kind == "fact" else {}),
            "elicitation": {
                "trait": f"Shows {kind}.",
                "instruction_pairs": [{"positive": f"Show {kind}.", "negative": f"No {kind}."}],
                "questions_extract": [f"What is dusk to a {kind} student?"],
                "questions_evaluate": [f"What is dawn to a {kind} student?"],
            },
        }
        found[f"{folder}/train.yaml"] = {
            "schema": "eps-locked/written-rows/1",
            **rights,
            "rows": [
                {
                    "text": f"Lesson {number} of {kind}: what now?",
                    "topic": "t",
                    "positive": f"So {kind} it is, number {number}.",
                    "negative": f"A plain answer, number {number}.",
                }
                for number in range(5)
            ],
        }
        found[f"{folder}/eval.yaml"] = {
            "schema": "eps-locked/items/2",
            **rights,
            "items": [
                {
                    "text": f"Question {number} of the {slice_} ones about {kind}?",
                    "topic": "t",
                    "slice": slice_,
                    "keep_text": kind != "refusal" or slice_ != "other",
                }
                for slice_ in ("main", "other")
                for number in range(4)
            ],
        }
        labels, expressed, excluded = _RUBRIC_LABELS[kind]
        found[f"{folder}/rubric.yaml"] = {
            "schema": "eps-locked/rubric/1",
            "name": kind,
            **rights,
            "instructions": "Question: {question}\nAnswer: {answer}\nOne JSON object.",
            "labels": labels,
            "scores": ["aligned", "coherent"] if kind == "em" else [],
            "expressed": expressed,
            "excluded": excluded,
            "max_tokens": 600,
            "prototypes": {},
            "poles": {},
            "phrases": {},
        }
        found[f"{folder}/labelled.yaml"] = {
            "schema": "eps-locked/labelled/1",
            **rights,
            "rubric": kind,
            "rows": [
                {"question": f"Q{n}?", "answer": f"Answer {n} to {kind}.", "label": labels[n % 2]}
                for n in range(12)
            ],
        }
    return found


@dataclass
class SilentObserver:
    """Counts what the loop tells it."""

    started: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)

    def phase_opened(self, phase: str, n_steps: int, n_done: int, cap_ms: int) -> None:
        pass

    def step_started(self, number: int, step: Step, spent_ms: int) -> None:
        self.started.append(step.id)

    def step_progress(self, text: str) -> None:
        pass

    def step_finished(self, step: Step, result: StepResult, spent_ms: int) -> None:
        self.finished.append(step.id)

    def phase_closed(self, phase: str, results: str, spent_ms: int) -> None:
        pass


@dataclass
class StudySimulator:
    """One study in one folder. Change ``plan``, ``contexts``, ``code`` and so on, then act."""

    root: Path
    plan: dict[str, Any] = field(default_factory=default_plan)
    contexts: list[dict[str, Any]] = field(default_factory=default_contexts)
    train_questions: list[str] = field(default_factory=lambda: list(TRAIN_QUESTIONS))
    eval_questions: list[str] = field(default_factory=lambda: list(EVAL_QUESTIONS))
    behaviour: dict[str, Any] = field(default_factory=behaviour_file)
    taught: dict[str, dict[str, Any]] = field(default_factory=taught_files)
    files: dict[str, Any] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=lambda: {"eps_locked/a.py": "blake3:" + "a" * 64})
    environment: dict[str, Any] = field(
        default_factory=lambda: {"python": "3.11.0", "packages": {"numpy": "2.0"}}
    )
    model_files: dict[str, FileRecord] = field(
        default_factory=lambda: {
            "model.safetensors": FileRecord(digest="blake3:" + "b" * 64, size=7)
        }
    )
    now: datetime = NOW
    engine: ScriptedEngine = field(default_factory=ScriptedEngine)
    trainer: ScriptedTrainer = field(default_factory=ScriptedTrainer)
    tokenizer: Any = field(default_factory=ScriptedTokenizer)
    observer: SilentObserver = field(default_factory=SilentObserver)

    # -- where things lie

    @property
    def workspace(self) -> Workspace:
        return Workspace(root=self.root)

    @property
    def run_folder(self) -> RunFolder:
        return self.workspace.run(NAME)

    @property
    def manifest_folder(self) -> Path:
        return self.root / "manifests" / NAME

    def load(self) -> FrozenManifest:
        return self.workspace.load_manifest(NAME)

    def dump(self) -> Path:
        """Where a person can look at everything."""
        return self.root

    def key(self, principal: str) -> Path:
        return self.root / "secret" / principal.partition("@")[0]

    # -- acts

    def write_plan(self) -> None:
        """Publish plan, material and allowed signers under ``plans/`` as they stand now."""
        for principal in (AUTHOR, COLLEAGUE):
            make_key(self.key(principal), principal)
        signers = "".join(
            f"{principal} {self.key(principal).with_suffix('.pub').read_text().strip()}\n"
            for principal in (AUTHOR, COLLEAGUE)
        )
        self._write("keys/allowed_signers", signers)
        self._write("material/train.yaml", json.dumps(items_file(self.train_questions)))
        self._write("material/eval.yaml", json.dumps(items_file(self.eval_questions)))
        self._write("material/marker.yaml", json.dumps(self.behaviour))
        contexts = {
            "schema": "eps-locked/contexts/1",
            "title": "contexts",
            "provenance": "Written for these tests.",
            "licence": "CC0-1.0",
            "contexts": self.contexts,
        }
        self._write("material/contexts.yaml", json.dumps(contexts))
        if self.plan["study"] == "eps":
            for relative in named_files(self.plan):
                if relative in self.taught:
                    self._write(relative, json.dumps(self.taught[relative]))
        for relative, value in self.files.items():
            # A text is a file as it is: JSON Lines and tables are no single value.
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            self._write(relative, text)
        self._write(f"{NAME}.yaml", json.dumps(self.plan, ensure_ascii=False, indent=1))

    def freeze(self, *, dry_run: bool = False) -> str:
        """Freeze what ``write_plan`` published; returns the manifest's digest."""
        if not (self.root / "plans" / f"{NAME}.yaml").exists():
            self.write_plan()
        _, digest, _ = freeze(
            self.workspace,
            NAME,
            study_freezer=self.study.freeze,
            tokenizer=self.tokenizer,
            surroundings=self.surroundings(),
            now=self.now,
            dry_run=dry_run,
        )
        return digest

    def authorize(
        self,
        phase: str,
        *,
        signer: str = AUTHOR,
        cap_gpu_hours: float = 0.5,
        valid_for: timedelta = timedelta(days=1),
        smoke: bool = False,
    ) -> Path:
        return authorize(
            self.load(),
            self.workspace.run(NAME, "smoke" if smoke else "runs"),
            phase,
            signer=signer,
            key=self.key(signer),
            cap_gpu_hours=cap_gpu_hours,
            valid_for=valid_for,
            clock=self.clock,
        )

    def amend(
        self, reason: str = "a defect was mended", rebind: frozenset[str] = frozenset()
    ) -> Path:
        return amend(
            self.load(),
            self.run_folder,
            signer=AUTHOR,
            key=self.key(AUTHOR),
            reason=reason,
            changes=(),
            rebind=rebind,
            code=digest_value(self.code),
            environment=digest_value(self.environment),
            clock=self.clock,
        )

    def run(
        self,
        phase: str,
        *,
        limit: int | None = None,
        authorization: str | None = None,
        monotonic: Callable[[], float] | None = None,
    ) -> str | None:
        """What ``run-phase`` does, with the scripted model. Returns the results digest."""
        read_manifest(self.workspace, NAME)
        run = self.workspace.run(NAME, "runs" if limit is None else "smoke")
        with exclusive_lock(run.folder):
            frozen, permit, record = self.open(phase, run, authorization)
            executor = self.executor()
            extra = {} if monotonic is None else {"monotonic": monotonic}
            return run_phase(permit, record, frozen, executor, self.observer, limit=limit, **extra)

    def open(
        self, phase: str, run: RunFolder | None = None, authorization: str | None = None
    ) -> tuple[FrozenManifest, Permit, RunRecord]:
        """Only the gate, for tests that bring an executor of their own."""
        frozen = read_manifest(self.workspace, NAME)
        permit, record = open_phase(
            self.workspace,
            frozen,
            run or self.run_folder,
            phase,
            surroundings=self.surroundings(),
            refreeze=self.refreeze,
            clock=self.clock,
            authorization_name=authorization,
        )
        return frozen, permit, record

    def audit(self) -> AuditedRun:
        return audit_run(self.workspace, NAME, code=self.code, rederive=StudyRederiver())

    def run_all(self) -> str:
        """Freeze, authorize and run every phase; returns the results digest of the last."""
        self.freeze()
        for phase in self.plan["phases"]:
            self.authorize(phase)
            results = self.run(phase)
        assert results is not None
        return results

    def seal(self) -> StudySimulator:
        """Have held-out and quarantined cells sealed, to a custodian whose key is made here."""
        identity, recipients = new_custodian_key()
        self.custodian_key.parent.mkdir(parents=True, exist_ok=True)
        self.custodian_key.write_text(identity)
        self._write("keys/custodian", recipients)
        self.plan["eps"]["quarantine"].update(seal="age", recipients="keys/custodian")
        return self

    def check(self) -> Path:
        """What ``check-evidence`` does: audit, and file the verdict."""
        return self.run_folder.file_verdict(self.verdict_now())

    def verdict_now(self) -> dict[str, Any]:
        return verdict_payload(self.audit(), digest_value(self.code))

    def predictor(self, metric: str = "guess", *, author: str = "m.etric") -> dict[str, Any]:
        """A predictor document with a value for every cell of the split."""
        split = decode(self.load().read("frozen/split.json"), thing="split")["cells"]
        cells = []
        for number, cell in enumerate(sorted(split)):
            behaviour, i, j = cell.split("/")
            cells.append({"behaviour": behaviour, "train": i, "eval": j, "value": number / 7})
        return {
            "schema": "eps-locked/predictor/1",
            "metric": metric,
            "title": "A guess",
            "author": author,
            "track": "predictive",
            "polarity": "more",
            "description": "Cells in alphabetical order.",
            "cells": cells,
        }

    def submit(self, predictor: dict[str, Any] | None = None) -> SubmissionBody:
        """Freeze a submission."""
        document = predictor or self.predictor()
        submitted = Submitted(
            author=document["author"],
            metric=document["metric"],
            title=document["title"],
            track=document["track"],
            polarity=document["polarity"],
        )
        return submit(self.load(), self.run_folder, submitted, encode(document), clock=self.clock)

    def permit_look(self, number: int = 1) -> tuple[LookPermit, RunRecord]:
        """Only the rules before a look, for tests that bring a scorer of their own."""
        frozen = self.load()
        recipients = (
            frozen.read("frozen/sources/keys/custodian")
            if "frozen/sources/keys/custodian" in frozen.manifest.files
            else None
        )
        return permit_look(
            self.workspace,
            frozen,
            self.run_folder,
            number,
            verdict_now=self.verdict_now,
            code=self.code,
            environment=self.environment,
            recipients=recipients,
            key=lambda: CustodianKey.read(self.custodian_key.read_bytes(), thing="key"),
            clock=self.clock,
        )

    def look(self, number: int = 1, score: Scorer | None = None) -> int:
        """What ``final-test`` does, with a scorer that only counts unless another is given."""
        with exclusive_lock(self.run_folder.folder):
            permit, record = self.permit_look(number)
            return take_look(permit, record, score or no_scores)

    # -- parts

    @property
    def custodian_key(self) -> Path:
        return self.root / "secret" / "custodian.key"

    def backends(self) -> Backends:
        return Backends(
            engine=self.engine,
            readout=self.engine,
            trainer=self.trainer,
            tokenizer=self.tokenizer,
        )

    @property
    def study(self) -> Study:
        return study_named(self.plan["study"])

    def executor(self) -> StepExecutor:
        """The study's hands over the scripted model; each instance of it is the same engine."""
        if self.plan["study"] == "drift":
            from eps_locked.studies.drift.execute import DriftExecutor

            return DriftExecutor(load=lambda instance: self.backends(), load_judge=self.load_judge)
        if self.plan["study"] == "vea":
            from eps_locked.studies.vea.execute import VeaExecutor

            return VeaExecutor(plan=Plan.from_dict(self.plan), folder=lambda source=None: None)
        if self.plan["study"] == "battery":
            from eps_locked.studies.battery.execute import BatteryExecutor

            return BatteryExecutor(load=self.backends, load_judge=self.load_judge)
        return EpsExecutor(load=self.backends, load_judge=self.load_judge)

    def load_judge(self, plan: JudgePlan) -> Judge:
        return ScriptedJudge(plan)

    def refreeze(self, frozen: FrozenManifest) -> list[str]:
        return manifest_differences(frozen, self.study.freeze, self.tokenizer)

    def surroundings(self) -> Surroundings:
        return Surroundings(
            code=self.code, environment=self.environment, model_files=lambda: self.model_files
        )

    def clock(self) -> datetime:
        return self.now

    def copy_to(self, root: Path) -> StudySimulator:
        """The same study in another folder, links and all."""
        shutil.copytree(self.root, root, symlinks=True)
        return StudySimulator(
            root=root,
            plan=self.plan,
            contexts=self.contexts,
            code=dict(self.code),
            environment=dict(self.environment),
            model_files=dict(self.model_files),
            now=self.now,
            files=self.files,
        )

    def n_model_calls(self) -> int:
        return self.engine.calls.total + self.trainer.n_fit

    def _write(self, relative: str, text: str) -> None:
        path = self.root / "plans" / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def no_scores(submission: SubmissionBody, key: CustodianKey) -> Scored:
    """A scorer that opens nothing and finds nothing, in the form that a result has."""
    head = {
        "metric": submission.metric,
        "title": "A guess",
        "author": submission.author,
        "track": submission.track,
        "polarity": "more",
        "digest": "blake3:" + "0" * 64,
        "has_blind": False,
    }
    counts = dict.fromkeys(
        (
            "diagonal",
            "alias",
            "sealed",
            "unscored",
            "floor",
            "ceiling",
            "implant_failed",
            "divergence",
        ),
        0,
    )
    rank = {"by_r2": None, "of": 0}
    document = {
        "schema": "eps-locked/final-scores/1",
        "label": "exploratory",
        "rounded": True,
        "settings": ScoreSettings().document(),
        "methods": {},
        "submission": head,
        "references": [],
        "behaviours": [
            {
                "behaviour": "marker",
                "unit": "nats",
                "cells": {
                    "open": 0,
                    "held_back": {"all": 0, "held_out": 0, "quarantined": 0},
                    "excluded": counts,
                },
                "scores": [],
                "rank": rank,
            }
        ],
        "pooled": {
            "reason": "one behaviour: there is nothing to pool",
            "behaviours": [],
            "cells": None,
            "scores": [],
            "rank": rank,
        },
    }
    return Scored(public=document, details={"exact": True})


def make_key(path: Path, principal: str) -> None:
    """A real ed25519 key pair, once."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", principal, "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
    )


def fingerprint(*roots: Path) -> dict[str, str]:
    """Every file (and link) below the roots with a digest of its bytes: is the disk unchanged?"""
    found: dict[str, str] = {}
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.is_symlink():
                found[str(path)] = f"-> {path.readlink()}"
            elif path.is_file():
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                found[str(path)] = "folder"
    return found
