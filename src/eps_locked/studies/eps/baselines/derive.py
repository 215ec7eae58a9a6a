"""What P3's steps must ask, derived from frozen files and recorded answers: run and audit share it.

No function here calls a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eps_locked.canonical import decode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.model import TokenIds
from eps_locked.domain.steps import Step
from eps_locked.errors import BackendError
from eps_locked.studies.common.prompts import Prompts
from eps_locked.studies.eps.baselines.records import ElicitedAnswer
from eps_locked.studies.eps.baselines.rules import PersonaRules
from eps_locked.studies.eps.derive import derived_rows, item_ids, readings_of, rows_digest
from eps_locked.studies.eps.plan import Behaviour, EpsPlan, TaughtBehaviour
from eps_locked.studies.eps.taught.derive import taught_rows
from eps_locked.studies.eps.taught.records import answers_from_files

__all__ = [
    "MeasuredRows",
    "answer_with_end",
    "elicitation_flags",
    "expression_of",
    "judged_prompts",
    "measured_rows",
    "probe_items",
]

NOT_ELICITED = "behaviour_not_elicited"


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRows:
    """The positives whose training answer is held against the model's own, by item.

    ``digest`` is of all rows of the fit, ``share`` the part of them that positives are.
    ``without_answer`` names positives left out because the model's own answer is empty.
    """

    digest: str
    share: float
    items: tuple[str, ...]
    without_answer: tuple[str, ...]
    prompts: Mapping[str, TokenIds]
    trained: Mapping[str, TokenIds]
    own: Mapping[str, TokenIds]


def probe_items(inputs: StepInputs, n: int) -> tuple[str, ...]:
    """The first ``n`` frozen train items: the questions that P3 asks in every context.

    Train items, so that no predictor has seen a question that the tensor is measured on.
    """
    return tuple(item_ids(inputs, "train")[:n])


def judged_prompts(
    inputs: StepInputs, others: Sequence[str]
) -> tuple[Mapping[str, TokenIds], dict[str, Mapping[str, TokenIds]]]:
    """A context's own prompts by item, and those of every other context."""
    own = Prompts.read(inputs.frozen("prompts"), "frozen prompts").by_item
    theirs = {name: Prompts.read(inputs.frozen(f"prompts:{name}"), name).by_item for name in others}
    return own, theirs


def answer_with_end(answer: TokenIds, stop_reason: str, contexts: bytes) -> TokenIds:
    """An answer with the end of turn that closed it: ending is a choice that KL must count too.

    So every answer has at least one position, the empty one its end.
    """
    if stop_reason != "stop":
        return answer
    end: int = decode(contexts, thing="contexts.json")["end_of_turn_id"]
    return (*answer, end)


def expression_of(behaviour: Behaviour) -> Callable[[str], bool | None]:
    """Whether a text shows the behaviour, as far as the text tells without a judge.

    The marker stands in it, with or without its leading space. Of a taught behaviour only a judge
    could say, and none is asked here: None.
    """
    if isinstance(behaviour, TaughtBehaviour):
        return lambda _text: None
    marker = behaviour.marker_text.strip()
    return lambda text: marker in text


def elicitation_flags(answers: Sequence[ElicitedAnswer]) -> tuple[str, ...]:
    """Says so where no positive answer shows the behaviour: the vector is then of the request."""
    positive = [answer.expressed for answer in answers if answer.side == "positive"]
    unknown = all(shown is None for shown in positive)
    return () if unknown or any(positive) else (NOT_ELICITED,)


def measured_rows(
    step: Step,
    inputs: StepInputs,
    section: EpsPlan,
    behaviour: Behaviour,
    rules: PersonaRules,
) -> MeasuredRows:
    """The rows of the fit in this step's context and seed, as the projection reads them.

    Raises BackendError if no positive has an answer of its own to compare with.
    """
    prompts = Prompts.read(inputs.frozen("prompts"), "frozen prompts").by_item
    own: dict[str, TokenIds]
    if isinstance(behaviour, TaughtBehaviour):
        rows = taught_rows(step, inputs, section, behaviour)
        _, _, answers = answers_from_files(inputs.artifact("answers"), "answers")
        own = {answer.item: answer.token_ids for answer in answers}
    else:
        rows = derived_rows(step, inputs, section, behaviour)
        own = {answer.item: answer.token_ids for answer in readings_of(inputs, "answers").answers}
    items, without, trained = [], [], {}
    for row in rows.rows[: rows.n_positives][: rules.n_rows]:
        item = row.key.removeprefix("positive/")
        if not own[item]:
            without.append(item)
            continue
        items.append(item)
        # A row is prompt, answer, end of turn; the end is left out on both sides.
        trained[item] = row.token_ids[len(prompts[item]) : -1]
    if not items:
        raise BackendError(
            step.id,
            expected="at least one positive with an answer of the model's own",
            found=f"{len(without)} empty ones",
        )
    return MeasuredRows(
        digest=rows_digest(rows),
        share=rows.n_positives / len(rows.rows),
        items=tuple(items),
        without_answer=tuple(without),
        prompts=prompts,
        trained=trained,
        own=own,
    )
