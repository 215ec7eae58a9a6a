"""What stands before a reply, token by token, and where reasoning is taken to end."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.canonical import digest_value
from eps_locked.domain.model import Decoding, Message, TokenIds
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.drift.plan import ReasoningSetting
from eps_locked.studies.drift.reasoning import Asked, Reasoner, Told, split_at_close
from eps_locked.studies.drift.rendering import ReasoningIds
from unit.studies.drift.teller import Teller

TOKENIZER = ScriptedTokenizer()
OPEN, CLOSE = "<think>\n", "\n</think>\n\n"
FILLER = TOKENIZER.encode(" . . . ")
IDS = ReasoningIds(
    open=TOKENIZER.encode(OPEN),
    close=TOKENIZER.encode(CLOSE),
    in_template=False,
    fillers={"dots": FILLER},
    end_of_turn_id=TOKENIZER.end_of_turn_id,
)
CLOSED = ReasoningSetting(name="closed", mode="closed")
FREE = ReasoningSetting(name="free", mode="free", max_tokens=60, retries=2)
BUDGET = ReasoningSetting(name="short", mode="budget", n_tokens=20)
DOTS = ReasoningSetting(name="dots", mode="filler", n_tokens=len(FILLER), text=" .")


def prompt(question: str) -> TokenIds:
    return TOKENIZER.render([Message(role="user", content=question)])


ASKED = tuple(
    Asked(probe=f"{stem}/0", sample=sample, prompt=prompt(f"What about {stem}?"))
    for stem in ("disk", "budget")
    for sample in (0, 1)
)


def seed(*labels: str) -> int:
    return int(digest_value(list(labels)).removeprefix("blake3:")[:12], 16)


def reasoner(engine: Any, setting: ReasoningSetting, **changes: Any) -> Reasoner:
    made = Reasoner(
        engine=engine,
        tokenizer=TOKENIZER,
        ids=IDS,
        setting=setting,
        decoding=Decoding(max_new_tokens=30, temperature=0.7),
        seed=seed,
    )
    return replace(made, **changes)


def ask(
    setting: ReasoningSetting, *says: Sequence[str], asked: Sequence[Asked] = ASKED[:1]
) -> tuple[list[Told], Teller]:
    engine = Teller(says=says)
    return list(reasoner(engine, setting).ask(asked)), engine


def sent(engine: Teller, call: int = 0, row: int = 0) -> str:
    """What followed the frozen prompt."""
    ids = engine.calls[call][0][row].token_ids
    assert ids[: len(ASKED[0].prompt)] == ASKED[0].prompt
    return TOKENIZER.decode(ids[len(ASKED[0].prompt) :])


# -- what is put before the reply


@pytest.mark.parametrize(
    ("setting", "before"),
    [
        (ReasoningSetting(name="none", mode="none"), ""),
        (CLOSED, OPEN + CLOSE),
        (replace(BUDGET, n_tokens=0), OPEN + CLOSE),
        (DOTS, OPEN + " . . . " + CLOSE),
    ],
)
def test_one_stage_settings_send_prompt_and_block_and_ask_once(
    setting: ReasoningSetting, before: str
) -> None:
    (told,), engine = ask(setting, ["Give it back."])
    assert sent(engine) == before
    assert len(engine.calls) == 1
    assert (told.reply, told.reasoning, told.stop) == ("Give it back.", "", "stop")
    assert told.token_ids == TOKENIZER.encode("Give it back.")
    assert told.n_reasoning_tokens == (len(FILLER) if setting is DOTS else 0)


@pytest.mark.parametrize("setting", [CLOSED, BUDGET, FREE, DOTS])
def test_a_block_that_the_template_opened_is_not_opened_again(setting: ReasoningSetting) -> None:
    engine = Teller(says=[[f"Hm.{CLOSE}Yes."]])
    reasoner(engine, setting, ids=replace(IDS, in_template=True)).ask(ASKED[:1])
    assert OPEN not in sent(engine)
    assert all(OPEN not in sent(engine, call) for call in range(len(engine.calls)))


def test_a_budget_of_nothing_is_a_closed_block_to_the_seed() -> None:
    engines = Teller(says=[["Yes."]]), Teller(says=[["Yes."]])
    for engine, setting in zip(engines, (CLOSED, replace(BUDGET, n_tokens=0)), strict=True):
        reasoner(engine, setting).ask(ASKED)
    assert engines[0].calls == engines[1].calls


# -- a budget


def test_reasoning_that_closes_itself_ends_there_and_the_reply_is_asked_behind_our_close() -> None:
    (told,), engine = ask(BUDGET, [f"Not mine.{CLOSE}So"], ["Give it back."])
    assert sent(engine, 0) == OPEN
    assert sent(engine, 1) == f"{OPEN}Not mine.{CLOSE}"
    assert engine.calls[0][1].max_new_tokens == 20
    assert engine.calls[1][1].max_new_tokens == 30
    assert (told.reasoning, told.n_reasoning_tokens) == ("Not mine.", 9)
    assert (told.reply, told.truncated_reasoning, told.exhausted) == ("Give it back.", False, False)


def test_reasoning_that_runs_over_is_cut_at_the_budget_and_closed() -> None:
    (told,), engine = ask(BUDGET, ["a" * 50], ["Yes."])
    assert sent(engine, 1) == f"{OPEN}{'a' * 20}{CLOSE}"
    assert (told.n_reasoning_tokens, told.truncated_reasoning) == (20, True)


def test_a_turn_that_ends_without_a_close_has_not_been_cut_off() -> None:
    (told,), engine = ask(BUDGET, ["Done."], ["Yes."])
    assert sent(engine, 1) == f"{OPEN}Done.{CLOSE}"
    assert (told.reasoning, told.truncated_reasoning) == ("Done.", False)


def test_a_close_that_the_budget_cut_in_two_still_closes() -> None:
    (told,), _ = ask(replace(BUDGET, n_tokens=11), ["ab\n</think>\n\nYes"], ["Yes."])
    assert told.reasoning == "ab\n"
    assert not told.truncated_reasoning


def test_each_stage_is_one_call_for_all_that_is_asked_with_seeds_of_their_own() -> None:
    _, engine = ask(BUDGET, ["Hm." + CLOSE], ["Yes."], asked=ASKED)
    assert [len(prompts) for prompts, _ in engine.calls] == [4, 4]
    seeds = [prompt.seed for prompts, _ in engine.calls for prompt in prompts]
    assert len(set(seeds)) == 8
    assert {prompt.seed for prompt in engine.calls[0][0]} == {
        seed(one.probe, str(one.sample), "0") for one in ASKED
    }


# -- free reasoning


def test_free_reasoning_and_reply_come_in_one_breath() -> None:
    (told,), engine = ask(FREE, [f"Not mine.{CLOSE}Give it back."])
    assert sent(engine) == OPEN
    assert engine.calls[0][1].max_new_tokens == 60
    assert (told.reasoning, told.reply) == ("Not mine.", "Give it back.")
    assert told.token_ids == TOKENIZER.encode("Give it back.")
    assert (told.n_reasoning_tokens, told.attempts, told.exhausted) == (9, 1, False)


def test_only_what_ran_out_is_asked_again_with_another_seed() -> None:
    good, bad = f"Hm.{CLOSE}Yes.", "a" * 99
    told, engine = ask(FREE, [good, bad, good, bad], [bad, good], [good], asked=ASKED)
    assert [one.attempts for one in told] == [1, 3, 1, 2]
    assert not any(one.exhausted for one in told)
    assert [len(prompts) for prompts, _ in engine.calls] == [4, 2, 1]
    again = [prompts for prompts, _ in engine.calls]
    assert again[1][0].token_ids == again[0][1].token_ids
    assert len({again[0][1].seed, again[1][0].seed, again[2][0].seed}) == 3


def test_after_the_last_attempt_there_is_no_reply_and_the_reasoning_is_the_last_ones() -> None:
    (told,), engine = ask(FREE, ["a" * 99], ["b" * 99], ["c" * 99])
    assert len(engine.calls) == 3
    assert (told.exhausted, told.attempts, told.reply, told.token_ids) == (True, 3, "", ())
    assert (told.reasoning, told.n_reasoning_tokens) == ("c" * 60, 60)


def test_without_retries_one_attempt_is_all() -> None:
    (told,), engine = ask(replace(FREE, retries=0), ["a" * 99])
    assert (told.exhausted, told.attempts, len(engine.calls)) == (True, 1, 1)


@pytest.mark.parametrize(
    ("says", "exhausted", "reply", "stop"),
    [
        ("a" * 49 + CLOSE, True, "", "length"),
        ("a" * 48 + CLOSE + "Yes, and more", False, "Y", "length"),
        ("Hm." + CLOSE, False, "", "stop"),
        ("Hm.", True, "", "stop"),
    ],
)
def test_running_out_before_the_first_word_is_no_reply_and_an_empty_reply_is_one(
    says: str, exhausted: bool, reply: str, stop: str
) -> None:
    (told,), _ = ask(replace(FREE, retries=0), [says])
    assert (told.exhausted, told.reply, told.stop) == (exhausted, reply, stop)


# -- where the block is closed


def split(text: str, close: str = CLOSE) -> tuple[str, str, str] | None:
    found = split_at_close(TOKENIZER.encode(text), TOKENIZER.encode(close), TOKENIZER)
    if found is None:
        return None
    return TOKENIZER.decode(found.reasoning), TOKENIZER.decode(found.reply), found.text


@pytest.mark.parametrize(
    ("text", "reasoning", "reply"),
    [
        (f"Hm.{CLOSE}Yes.", "Hm.", "Yes."),
        (f"{CLOSE}Yes.", "", "Yes."),
        (f"Hm.{CLOSE}", "Hm.", ""),
        (f"One.{CLOSE}Two.{CLOSE}Three.", "One.", f"Two.{CLOSE}Three."),
        ("Hm.</think>Yes.", "Hm.", "Yes."),
        ("Hm. </think>\nYes.", "Hm. ", "\nYes."),
        (f"für 漢字 🙂{CLOSE}ja 🙂", "für 漢字 🙂", "ja 🙂"),
    ],
)
def test_the_first_close_parts_reasoning_from_reply(text: str, reasoning: str, reply: str) -> None:
    assert split(text) == (reasoning, reply, reply)


@pytest.mark.parametrize("text", ["", "Hm.", "Hm.\n</thin", "< think >"])
def test_without_a_close_nothing_is_parted(text: str) -> None:
    assert split(text) is None


def test_the_frozen_spelling_wins_over_a_bare_one_before_it() -> None:
    assert split(f"I write </think> now.{CLOSE}Yes.") == ("I write </think> now.", "Yes.", "Yes.")


class Pieces:
    """A tokenizer whose tokens are the pieces of one list: a close can be spelled anyhow."""

    end_of_turn_id = 0
    template_digest = ""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    def render(self, messages: Sequence[Message]) -> TokenIds:
        raise RuntimeError("not asked here")

    def encode(self, text: str) -> TokenIds:
        raise RuntimeError("not asked here")

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(self.pieces[token] for token in token_ids).decode(errors="replace")


@pytest.mark.parametrize(
    ("pieces", "reasoning", "reply", "text"),
    [
        # The close as one token, as two, and grown together with what stands beside it.
        ([b"Hm", b".", b"</t>", b"Yes"], (0, 1), (3,), "Yes"),
        ([b"Hm", b".", b"</", b"t>", b"Yes"], (0, 1), (4,), "Yes"),
        ([b"Hm", b".</", b"t>", b"Yes"], (0,), (3,), "Yes"),
        ([b"Hm", b".", b"</", b"t>Yes", b"!"], (0, 1), (3, 4), "Yes!"),
        # A character in pieces right before the close.
        ([b"Hm", b"\xf0\x9f", b"\x99\x82", b"</t>", b"Yes"], (0, 1, 2), (4,), "Yes"),
    ],
)
def test_tokens_that_stand_wholly_before_the_close_are_the_reasoning(
    pieces: list[bytes], reasoning: TokenIds, reply: TokenIds, text: str
) -> None:
    tokenizer = Pieces(*pieces, b"</t>")
    found = split_at_close(tuple(range(len(pieces))), (len(pieces),), tokenizer)
    assert found is not None
    assert (found.reasoning, found.reply, found.text) == (reasoning, reply, text)


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("each_byte", _each_byte)


class SingleBytes(Pieces):
    """As models decode that fall back on bytes: an unfinished character counts once a byte."""

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(self.pieces[token] for token in token_ids).decode(errors="each_byte")


@pytest.mark.parametrize("n_before", range(8))
def test_a_character_that_counts_for_more_until_it_is_whole_stays_in_the_reasoning(
    n_before: int,
) -> None:
    pieces = [b"a"] * n_before + [bytes([byte]) for byte in "🙂".encode()] + [b"</t>", b"Yes"]
    tokenizer = SingleBytes(*pieces, b"</t>")
    found = split_at_close(tuple(range(len(pieces))), (len(pieces),), tokenizer)
    assert found is not None
    assert found.reasoning == tuple(range(n_before + 4))
    assert (found.reply, found.text) == ((n_before + 5,), "Yes")


def test_a_long_continuation_is_parted_where_a_plain_search_parts_it() -> None:
    for n in (0, 1, 2, 63, 64, 65, 1000):
        before = "wort für wort "[: n % 14] + "ü🙂a" * n
        assert split(f"{before}{CLOSE}Ja.") == (before, "Ja.", "Ja.")


# -- with a model whose words follow from its prompt and seed


@pytest.mark.parametrize("setting", [CLOSED, BUDGET, FREE, DOTS])
def test_a_row_says_the_same_alone_and_among_others(setting: ReasoningSetting) -> None:
    made = reasoner(ScriptedEngine(), setting, ids=replace(IDS, close=TOKENIZER.encode(" the ")))
    together = made.ask(ASKED)
    assert together == tuple(made.ask([one])[0] for one in ASKED)
    assert together == made.ask(ASKED)
    assert len({one.reply for one in together}) > 1


def test_nothing_asked_is_nothing_sent() -> None:
    engine = Teller(says=[["Yes."]])
    assert reasoner(engine, FREE).ask(()) == ()
    assert engine.calls == []
