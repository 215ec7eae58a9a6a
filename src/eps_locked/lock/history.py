"""The rules between ledger entries: what may follow what. Pure; the ledger's lines come in order.

The same ``History`` drives the run loop (what is left to do, what may be spent) and the audit
(was every rule kept), so the two cannot disagree about what a ledger means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eps_locked.canonical import digest_value
from eps_locked.domain.authorization import Seen
from eps_locked.domain.ledger import (
    AbortedBody,
    AmendmentBody,
    Artifact,
    CloseBody,
    Entry,
    LookBody,
    OpenBody,
    ScoreBody,
    StepBody,
    SubmissionBody,
)
from eps_locked.domain.steps import FILE_REF, STEP_REF, Step, results_digest
from eps_locked.errors import EvidenceError

# Kinds of steps, of any study, whose outcomes whoever runs them can read.
OUTCOME_KINDS = frozenset(
    {"cells", "tensor", "ask", "drift", "score", "breadth", "speed", "battery"}
)


def next_lock_head(previous: str, amendment_digest: str) -> str:
    """What authorizations must name once an amendment has taken effect."""
    return digest_value(
        {
            "schema": "eps-locked/lock-head/1",
            "previous": previous,
            "amendment": amendment_digest,
        }
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What the manifest fixed: digest, phases in order, steps, frozen files, code, environment."""

    manifest_digest: str
    phases: tuple[str, ...]
    steps: Mapping[str, Step]
    files: Mapping[str, str]
    code: str
    environment: str

    def of_phase(self, phase: str) -> tuple[Step, ...]:
        return tuple(step for step in self.steps.values() if step.phase == phase)


@dataclass(kw_only=True, slots=True)
class History:
    """What has happened so far. Only ``accept`` changes it."""

    terms: Terms
    lock_head: str = ""
    allowed_code: set[str] = field(default_factory=set)
    allowed_environment: set[str] = field(default_factory=set)
    done: dict[str, StepBody] = field(default_factory=dict)
    closed: dict[str, CloseBody] = field(default_factory=dict)
    opened: OpenBody | None = None
    opens: list[OpenBody] = field(default_factory=list)
    aborted: list[AbortedBody] = field(default_factory=list)
    amendments: list[AmendmentBody] = field(default_factory=list)
    before_amendments: list[tuple[str, Seen]] = field(default_factory=list)
    spent_ms: dict[str, int] = field(default_factory=dict)
    slowest_ms: dict[str, int] = field(default_factory=dict)
    submissions: list[SubmissionBody] = field(default_factory=list)
    looks: list[LookBody] = field(default_factory=list)
    before_looks: list[str] = field(default_factory=list)
    scores: dict[int, ScoreBody] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lock_head = self.terms.manifest_digest
        self.allowed_code = {self.terms.code}
        self.allowed_environment = {self.terms.environment}

    def accept(self, entry: Entry, *, where: str) -> None:
        """Apply one entry. Raises EvidenceError, and changes nothing, if a rule is broken."""
        body: Mapping[str, object] = entry.body
        match entry.kind:
            case "open":
                self._open(OpenBody.from_dict(body, where), where)
            case "step":
                self._step(StepBody.from_dict(body, where), where)
            case "aborted":
                self._aborted(AbortedBody.from_dict(body, where), where)
            case "amendment":
                self._amendment(AmendmentBody.from_dict(body, where), entry.prev, where)
            case "close":
                self._close(CloseBody.from_dict(body, where), where)
            case "submission":
                self._submission(SubmissionBody.from_dict(body, where), where)
            case "look":
                self._look(LookBody.from_dict(body, where), entry.prev, where)
            case "score":
                self._score(ScoreBody.from_dict(body, where), where)

    def artifacts(self) -> Iterator[Artifact]:
        """Every artifact that an entry names, in order; the same one may come more than once."""
        for body in self.done.values():
            yield from body.outputs.values()
        for submission in self.submissions:
            yield submission.submission
        for score in self.scores.values():
            if score.result is not None:
                yield score.result

    def looks_by(self, author: str) -> int:
        """How many looks were taken at submissions of this author, by name without case."""
        name = author.casefold().strip()
        mine = {s.number for s in self.submissions if s.author.casefold().strip() == name}
        return sum(look.submission in mine for look in self.looks)

    def is_complete(self) -> bool:
        """Whether every phase is closed."""
        return all(phase in self.closed for phase in self.terms.phases)

    def what_was_seen(self) -> Seen:
        """What could have been known when a deviation was decided, told by the ledger.

        Recorded outcomes (open cells, replies, scores) lie in plain text on the runner's disk, so
        they count as seen whether or not anybody says they looked.
        """
        if not self.done:
            return "nothing_run"
        kinds = {self.terms.steps[step].kind for step in self.done}
        return "seen" if kinds & OUTCOME_KINDS else "run_unseen"

    def remaining(self, phase: str) -> tuple[Step, ...]:
        return tuple(step for step in self.terms.of_phase(phase) if step.id not in self.done)

    def would_spend(self, step: Step) -> int:
        """Device-milliseconds of the phase if ``step`` ran next and cost what such steps cost:
        the plan's estimate, or the slowest of its kind so far."""
        cost = max(step.estimate_ms, self.slowest_ms.get(step.kind, 0))
        return self.spent_ms.get(step.phase, 0) + cost

    def most_outputs(self, phase: str) -> int:
        """How many artifacts one unfinished act can have left behind at most: a step of the phase
        or, once every phase is closed, a submission or a look's result."""
        default = 1 if self.is_complete() else 0
        return max((len(step.outputs) for step in self.remaining(phase)), default=default)

    def resolve_inputs(self, step: Step, *, where: str) -> dict[str, str]:
        """Digests of everything a step reads, from frozen files and finished steps."""
        resolved = {}
        for name, reference in step.inputs.items():
            if reference.startswith(FILE_REF):
                digest = self.terms.files.get(reference[len(FILE_REF) :])
            else:
                step_id, _, output = reference[len(STEP_REF) :].partition("#")
                artifact = self.done[step_id].outputs.get(output) if step_id in self.done else None
                digest = artifact.digest if artifact else None
            if digest is None:
                raise EvidenceError(
                    f"{where}: {step.id}.inputs.{name}", expected=reference, found="nothing"
                )
            resolved[name] = digest
        return resolved

    def results(self, phase: str) -> str:
        rows = []
        for step in self.terms.of_phase(phase):
            body = self.done[step.id]
            outputs = {name: artifact.identity for name, artifact in body.outputs.items()}
            rows.append((step.id, body.status, outputs))
        return results_digest(phase, rows)

    def _open(self, body: OpenBody, where: str) -> None:
        if body.phase not in self.terms.phases:
            raise EvidenceError(f"{where}: phase", expected=self.terms.phases, found=body.phase)
        before = self.terms.phases[: self.terms.phases.index(body.phase)]
        for phase in before:
            if phase not in self.closed:
                raise EvidenceError(
                    f"{where}: phase {body.phase}", expected=f"{phase} closed before", found="open"
                )
        if body.phase in self.closed:
            raise EvidenceError(where, problem=f"phase {body.phase} was closed before")
        _same(f"{where}: lock_head", self.lock_head, body.lock_head)
        _among(f"{where}: code", self.allowed_code, body.code)
        _among(f"{where}: environment", self.allowed_environment, body.environment)
        self.opened = body
        self.opens.append(body)

    def _session(self, phase: str, where: str) -> OpenBody:
        if self.opened is None or self.opened.phase != phase or phase in self.closed:
            found = "none" if self.opened is None else self.opened.phase
            raise EvidenceError(where, expected=f"an open session on {phase}", found=found)
        return self.opened

    def _step(self, body: StepBody, where: str) -> None:
        session = self._session(body.phase, where)
        step = self.terms.steps.get(body.step)
        if step is None:
            raise EvidenceError(f"{where}: step", expected="a promised step", found=body.step)
        if body.step in self.done:
            raise EvidenceError(f"{where}: step {body.step}", problem="is recorded twice")
        _same(f"{where}: {body.step}.phase", step.phase, body.phase)
        _same(f"{where}: {body.step}.seed", step.seed, body.seed)
        _same(f"{where}: {body.step}.code", session.code, body.code)
        _same(f"{where}: {body.step}.environment", session.environment, body.environment)
        _same(f"{where}: {body.step}.engine", digest_value(dict(session.engine)), body.engine)
        expected = self.resolve_inputs(step, where=where)
        for name in sorted(set(expected) | set(body.inputs)):
            _same(f"{where}: {body.step}.inputs.{name}", expected.get(name), body.inputs.get(name))
        _same(f"{where}: {body.step}.outputs", sorted(step.outputs), sorted(body.outputs))
        would_spend = self.would_spend(step)
        if would_spend > session.cap_ms:
            raise EvidenceError(
                f"{where}: {body.step}",
                problem="was started past the authorized cap",
                expected=f"at most {session.cap_ms} ms",
                found=f"{would_spend} ms",
            )
        self._charge(body.phase, body.compute_ms)
        self.slowest_ms[step.kind] = max(self.slowest_ms.get(step.kind, 0), body.compute_ms)
        self.done[body.step] = body

    def _aborted(self, body: AbortedBody, where: str) -> None:
        self._session(body.phase, where)
        step = self.terms.steps.get(body.step)
        if step is None:
            raise EvidenceError(f"{where}: step", expected="a promised step", found=body.step)
        _same(f"{where}: {body.step}.phase", step.phase, body.phase)
        if body.step in self.done:
            raise EvidenceError(f"{where}: step {body.step}", problem="was finished before")
        self._charge(body.phase, body.compute_ms)
        self.aborted.append(body)

    def _amendment(self, body: AmendmentBody, prev: str, where: str) -> None:
        _same(f"{where}: number", len(self.amendments) + 1, body.number)
        expected = next_lock_head(self.lock_head, body.amendment)
        _same(f"{where}: lock_head", expected, body.lock_head)
        self.before_amendments.append((prev, self.what_was_seen()))
        self.lock_head = body.lock_head
        self.amendments.append(body)
        # The old terms stay allowed for what ran before; from here on only the new ones are.
        if "code" in body.rebind:
            self.allowed_code = {body.rebind["code"]}
        if "environment" in body.rebind:
            self.allowed_environment = {body.rebind["environment"]}
        # Whatever ran until now ran under the old terms; going on needs a new authorization.
        self.opened = None

    def _close(self, body: CloseBody, where: str) -> None:
        self._session(body.phase, where)
        left = self.remaining(body.phase)
        if left:
            raise EvidenceError(
                where, expected=f"every step of {body.phase} finished", found=f"{left[0].id} open"
            )
        _same(f"{where}: n_steps", len(self.terms.of_phase(body.phase)), body.n_steps)
        _same(f"{where}: results", self.results(body.phase), body.results)
        _same(f"{where}: compute_ms", self.spent_ms.get(body.phase, 0), body.compute_ms)
        self.closed[body.phase] = body
        self.opened = None

    def _submission(self, body: SubmissionBody, where: str) -> None:
        self._require_complete(where)
        _same(f"{where}: number", len(self.submissions) + 1, body.number)
        expected = {"author": self.looks_by(body.author), "any": len(self.looks)}
        _same(f"{where}: looks_before", expected, dict(body.looks_before))
        self.submissions.append(body)
        self.opened = None

    def _look(self, body: LookBody, prev: str, where: str) -> None:
        self._require_complete(where)
        _same(f"{where}: number", len(self.looks) + 1, body.number)
        if body.submission > len(self.submissions):
            raise EvidenceError(
                f"{where}: submission",
                expected=f"one of the {len(self.submissions)} frozen before",
                found=body.submission,
            )
        submission = self.submissions[body.submission - 1]
        _same(f"{where}: informed", submission.looks_before["author"] > 0, body.informed)
        self.looks.append(body)
        self.before_looks.append(prev)
        self.opened = None

    def _score(self, body: ScoreBody, where: str) -> None:
        _same(f"{where}: look", len(self.looks) or None, body.look)
        if body.look in self.scores:
            raise EvidenceError(f"{where}: look {body.look}", problem="has ended before")
        self.scores[body.look] = body

    def _require_complete(self, where: str) -> None:
        for phase in self.terms.phases:
            if phase not in self.closed:
                raise EvidenceError(where, expected=f"phase {phase} closed before", found="open")

    def _charge(self, phase: str, compute_ms: int) -> None:
        self.spent_ms[phase] = self.spent_ms.get(phase, 0) + compute_ms


def _same(thing: str, expected: object, found: object) -> None:
    if expected != found:
        raise EvidenceError(thing, expected=expected, found=found)


def _among(thing: str, expected: set[str], found: str) -> None:
    if found not in expected:
        raise EvidenceError(thing, expected=" or ".join(sorted(expected)), found=found)
