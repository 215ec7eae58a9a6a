"""Asking, sampling again and judging: what turns a served model into the records of its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eps_locked.domain.execution import Progress
from eps_locked.domain.judging import Judge, JudgePlan, JudgeRequest, Rubric, Verdict
from eps_locked.domain.model import (
    ChatTokenizer,
    Completion,
    LogprobEngine,
    Prompt,
    SlotProbe,
    SlotReading,
    SlotRequest,
    TokenIds,
)
from eps_locked.domain.steps import Step
from eps_locked.judges.transport import require_transport
from eps_locked.studies.common.prompts import Prompts, row_seed
from eps_locked.studies.eps.behaviours import TaughtBehaviour
from eps_locked.studies.eps.readings import Answer, Readings
from eps_locked.studies.eps.taught.derive import AskedItem
from eps_locked.studies.eps.taught.framing import Framing, FrozenFact, find_framing
from eps_locked.studies.eps.taught.outcomes import is_incoherent
from eps_locked.studies.eps.taught.records import (
    AnswerKey,
    JudgedAnswers,
    PriorReading,
    SampledAnswer,
)

__all__ = ["Asking", "read_prior"]

# (context, item, sample, round)
_Place = tuple[str, str, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """One step's questions to the model that is being served, under several contexts at once."""

    step: Step
    behaviour: TaughtBehaviour
    items: tuple[AskedItem, ...]
    prompts: Mapping[str, Prompts]
    rubric: Rubric
    engine: LogprobEngine
    tokenizer: ChatTokenizer
    judge: Judge
    judge_plan: JudgePlan
    fact: FrozenFact | None
    progress: Progress

    def measure(
        self, drafts: Mapping[tuple[str, str], TokenIds], base: Mapping[str, Readings] | None
    ) -> dict[str, JudgedAnswers]:
        """Records by context. ``drafts`` are guesses at the answers by (context, item).

        ``base``: a fact row's readings of the base model, whose slots are read too; None when the
        model served is the base itself.
        """
        completions, verdicts = self._sampled(drafts)
        slots = {} if self.fact is None else self._slots(completions, base)
        keep = {item.id: item.keep_text for item in self.items}
        records = {}
        for context in self.prompts:
            mine = {place[1:]: c for place, c in completions.items() if place[0] == context}
            answers = tuple(
                SampledAnswer.of(
                    key, one.token_ids, one.text, one.stop_reason, keep_text=keep[key[0]]
                )
                for key, one in sorted(mine.items(), key=self._order)
            )
            records[context] = JudgedAnswers(
                behaviour=self.behaviour.name,
                context=context,
                answers=answers,
                verdicts=tuple(
                    verdict for answer in answers for verdict in verdicts[(context, *answer.key)]
                ),
                judge=self.judge.identity.to_dict(),
                rubric=self.rubric.digest,
                slots=slots.get(context),
                prior=None,
            )
        return records

    def _sampled(
        self, drafts: Mapping[tuple[str, str], TokenIds]
    ) -> tuple[dict[_Place, Completion], dict[_Place, list[Verdict]]]:
        """Every answer with its verdicts; what is judged incoherent is drawn again, and kept."""
        completions: dict[_Place, Completion] = {}
        verdicts: dict[_Place, list[Verdict]] = {}
        samples = range(self.behaviour.n_samples)
        open_: list[tuple[str, str, int]] = [
            (context, item.id, sample)
            for context in self.prompts
            for item in self.items
            for sample in samples
        ]
        for round_ in range(self.behaviour.resample_rounds + 1):
            places = [(*one, round_) for one in open_]
            self.progress(f"{len(places)} answers in {len(self.prompts)} contexts, round {round_}")
            found = self._generate(places, drafts)
            judged = self._judge(places, found)
            completions |= found
            verdicts |= judged
            open_ = [place[:3] for place in places if is_incoherent(judged[place])]
            if not open_:
                break
        return completions, verdicts

    def _generate(
        self, places: Sequence[_Place], drafts: Mapping[tuple[str, str], TokenIds]
    ) -> dict[_Place, Completion]:
        rows = [
            Prompt(
                key="/".join(map(str, place)),
                token_ids=self.prompts[place[0]].by_item[place[1]],
                seed=row_seed(self.step, *map(str, place)),
                draft=drafts.get((place[0], place[1]), ()),
            )
            for place in places
        ]
        found = self.engine.generate(rows, self.behaviour.decoding)
        return dict(zip(places, found, strict=True))

    def _judge(
        self, places: Sequence[_Place], completions: Mapping[_Place, Completion]
    ) -> dict[_Place, list[Verdict]]:
        texts = {item.id: item.text for item in self.items}
        asked = [(place, draw) for place in places for draw in range(self.behaviour.draws)]
        self.progress(f"{len(asked)} verdicts")
        verdicts = self.judge.judge(
            [
                JudgeRequest(
                    key="/".join((self.step.id, *map(str, place))),
                    question=texts[place[1]],
                    answer=completions[place].text,
                    rubric=self.rubric,
                    draw=draw,
                )
                for place, draw in asked
            ]
        )
        require_transport(self.judge_plan, verdicts)
        found: dict[_Place, list[Verdict]] = {place: [] for place in places}
        for (place, _), verdict in zip(asked, verdicts, strict=True):
            found[place].append(replace(verdict, key="/".join(map(str, place[1:]))))
        return found

    def _slots(
        self, completions: Mapping[_Place, Completion], base: Mapping[str, Readings] | None
    ) -> dict[str, Readings]:
        """The attribute's standing at each answer's framing and, beside it, at the base's."""
        assert self.fact is not None
        places = [(c, item.id) for c in self.prompts for item in self.items]
        answers = {place: completions[*place, 0, 0] for place in places}
        framings = {
            place: find_framing(one.token_ids, self.fact, self.tokenizer)
            for place, one in answers.items()
        }
        heads = {
            place: framings[place].head(answers[place].token_ids, self.fact) for place in places
        }
        own = self._read(places, heads)
        second: Mapping[tuple[str, str], SlotReading] = {}
        if base is not None:
            before = {(c, one.item): one for c, found in base.items() for one in found.answers}
            second = self._read(places, {place: self._head(before[place]) for place in places})
        return {
            context: Readings(
                behaviour=self.behaviour.name,
                context=context,
                answers=tuple(
                    _answer(
                        item.id,
                        answers[context, item.id],
                        framings[context, item.id],
                        own[context, item.id],
                        second.get((context, item.id)),
                    )
                    for item in self.items
                ),
            )
            for context in self.prompts
        }

    def _head(self, base: Answer) -> TokenIds:
        assert self.fact is not None
        assert base.framing is not None
        framing = Framing(kind=base.framing, n_tokens=base.slot_index)
        return framing.head(base.token_ids, self.fact)

    def _read(
        self, places: Sequence[tuple[str, str]], heads: Mapping[tuple[str, str], TokenIds]
    ) -> dict[tuple[str, str], SlotReading]:
        assert self.fact is not None
        probe = SlotProbe(
            marker_ids=self.fact.attribute_ids, end_of_turn_id=self.tokenizer.end_of_turn_id
        )
        requests = [
            SlotRequest(
                key="/".join(place),
                token_ids=(*self.prompts[place[0]].by_item[place[1]], *heads[place]),
            )
            for place in places
        ]
        return dict(zip(places, self.engine.read_slots(requests, probe), strict=True))

    def _order(self, one: tuple[AnswerKey, Completion]) -> tuple[int, int, int]:
        """Items in their frozen order, then samples, then rounds."""
        (item, sample, round_), _ = one
        return [asked.id for asked in self.items].index(item), sample, round_


def read_prior(
    engine: LogprobEngine,
    tokenizer: ChatTokenizer,
    prompts: Prompts,
    written: Mapping[str, TokenIds],
) -> tuple[PriorReading, ...]:
    """How likely the base model finds written answers (by item, end included) in one context."""
    end, found = tokenizer.end_of_turn_id, []
    for item, ids in written.items():
        probe = SlotProbe(marker_ids=(*ids, end), end_of_turn_id=end)
        request = SlotRequest(key=item, token_ids=prompts.by_item[item])
        [reading] = engine.read_slots([request], probe)
        found.append(PriorReading(item=item, n_tokens=len(ids) + 1, log_prob=reading.log_prob))
    return tuple(found)


def _answer(
    item: str,
    completion: Completion,
    framing: Framing,
    own: SlotReading,
    second: SlotReading | None,
) -> Answer:
    return Answer(
        item=item,
        token_ids=completion.token_ids,
        text=completion.text,
        stop_reason=completion.stop_reason,
        marker_emitted=framing.kind == "taught",
        slot_index=framing.n_tokens,
        own=own,
        frozen=second,
        framing=framing.kind,
    )
