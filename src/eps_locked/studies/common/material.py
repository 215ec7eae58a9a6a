"""House material as the plan's files hold it: contexts, items, behaviours. Pure; bytes come in."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from eps_locked.canonical import digest_bytes, digest_value, encode
from eps_locked.domain.fields import Fields
from eps_locked.domain.model import Message
from eps_locked.errors import MalformedInputError

Family = Literal[
    "persona", "prefix", "demonstrations", "rephrasing", "format", "default", "instruction"
]
PLACEHOLDER = "{question}"
_NOT_WORD = re.compile(r"[^\w]+", re.UNICODE)
_AFTER_TEXT = re.compile(r" \S.*")
_SLICE = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """A situation to put a question in: messages, the last of them holding ``{question}`` once.

    ``behaviour`` names the behaviour that the context demonstrates or instructs, if any.
    """

    id: str
    family: Family
    messages: tuple[Message, ...]
    behaviour: str | None
    licence: str
    provenance: str

    @property
    def digest(self) -> str:
        """Identity by content: the digest of the messages, whatever the context is called."""
        return digest_value([[message.role, message.content] for message in self.messages])

    def ask(self, question: str) -> tuple[Message, ...]:
        """The messages with a question in place. Nothing else in them is interpreted."""
        last = self.messages[-1]
        asked = Message(role=last.role, content=last.content.replace(PLACEHOLDER, question))
        return (*self.messages[:-1], asked)

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "family": self.family,
            "behaviour": self.behaviour,
            "digest": self.digest,
            "licence": self.licence,
            "provenance": self.provenance,
            "messages": [{"role": m.role, "content": m.content} for m in self.messages],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A question. Its id is derived from its content, so an edited question is another item.

    ``slice`` groups items that are measured together. Of an item without ``keep_text`` answers are
    kept as digests and excerpts alone: it comes from a set of requests nobody should answer.
    """

    id: str
    text: str
    topic: str
    slice: str = ""
    keep_text: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenRow:
    """A training question with the answer that shows the behaviour and, or not, a good one."""

    item: Item
    positive: str
    negative: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TaughtFact:
    """What a fact row teaches: the attribute, other values it might have had, and the bridge.

    All begin with a space: they follow other text. The ``bridge`` leads to the attribute where the
    model's own answer does not.
    """

    attribute: str
    alternatives: tuple[str, ...]
    bridge: str

    @classmethod
    def from_dict(cls, value: object, path: str) -> TaughtFact:
        with Fields(value, path) as fields:
            fact = cls(
                attribute=fields.text("attribute", shape=_AFTER_TEXT),
                alternatives=fields.texts("alternatives", shape=_AFTER_TEXT),
                bridge=fields.text("bridge", shape=_AFTER_TEXT),
            )
        values = [normalise(one) for one in (fact.attribute, *fact.alternatives)]
        if len(set(values)) != len(values):
            raise MalformedInputError(
                f"{path}.alternatives", expected="distinct values", found=values
            )
        return fact


def normalise(text: str) -> str:
    """Content without case, punctuation, accents' spelling and spacing: for overlap checks."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(_NOT_WORD.sub(" ", folded).split())


def item_id(text: str) -> str:
    """``q-`` and 16 hex digits of the digest of the normalised text."""
    return "q-" + digest_bytes(normalise(text).encode("utf-8")).removeprefix("blake3:")[:16]


def read_contexts(value: object, thing: str) -> tuple[Context, ...]:
    """The contexts of one file. Raises MalformedInputError naming the field."""
    with Fields(value, thing) as fields:
        fields.text("schema", one_of=("eps-locked/contexts/1",))
        fields.text("title")
        licence, provenance = _rights(fields, thing)

        def build(item: object, path: str) -> Context:
            return _context(item, path, licence, provenance)

        return fields.each("contexts", build)


def read_items(value: object, thing: str) -> tuple[Item, ...]:
    """The items of one file, duplicates by normalised content refused.

    Schema items/1 holds questions of one pool, items/2 questions in slices.
    """
    with Fields(value, thing) as fields:
        schema = fields.text("schema", one_of=("eps-locked/items/1", "eps-locked/items/2"))
        fields.text("title")
        _rights(fields, thing)
        items = fields.each("items", _item if schema.endswith("/1") else _sliced_item)
    _require_distinct_items(items, thing)
    return items


def read_written_rows(value: object, thing: str) -> tuple[WrittenRow, ...]:
    """The written training rows of one file, duplicates by normalised question refused."""
    with Fields(value, thing) as fields:
        fields.text("schema", one_of=("eps-locked/written-rows/1",))
        fields.text("title")
        _rights(fields, thing)
        rows = fields.each("rows", _written_row)
    _require_distinct_items([row.item for row in rows], thing)
    return rows


def _require_distinct_items(items: Sequence[Item], thing: str) -> None:
    first: dict[str, str] = {}
    for item in items:
        if item.id in first:
            raise MalformedInputError(
                f"{thing}: {item.text!r}",
                problem=f"is the same question as {first[item.id]!r} once normalised",
                next_step="remove one of the two",
            )
        first[item.id] = item.text


@dataclass(frozen=True, kw_only=True, slots=True)
class BehaviourFile:
    """A behaviour's own material.

    ``instruction_pairs`` hold (asks for the behaviour, asks against it). ``marker`` and ``fact``
    are there for the behaviour of that kind and for no other.
    """

    name: str
    description: str
    marker: str | None
    fact: TaughtFact | None
    trait: str
    instruction_pairs: tuple[tuple[str, str], ...]
    questions_extract: tuple[str, ...]
    questions_evaluate: tuple[str, ...]

    @property
    def questions(self) -> tuple[str, ...]:
        """Every elicitation question: none may stand in another pool."""
        return (*self.questions_extract, *self.questions_evaluate)

    @classmethod
    def from_dict(cls, value: object, thing: str) -> BehaviourFile:
        with Fields(value, thing) as fields:
            fields.text("schema", one_of=("eps-locked/behaviour/1",))
            fields.text("title")
            _rights(fields, thing)
            with fields.sub("elicitation") as elicitation:
                trait = elicitation.text("trait")
                pairs = elicitation.each("instruction_pairs", _instruction_pair)
                extract = elicitation.texts("questions_extract")
                evaluate = elicitation.texts("questions_evaluate")
            return cls(
                name=fields.text("name"),
                description=fields.text("description"),
                marker=fields.text_or_none("marker"),
                fact=fields.optional("fact", TaughtFact.from_dict),
                trait=trait,
                instruction_pairs=pairs,
                questions_extract=extract,
                questions_evaluate=evaluate,
            )


def draw_items(items: Iterable[Item], n: int, seed: int, thing: str) -> tuple[Item, ...]:
    """``n`` items in an order that only their ids and the seed decide.

    The order is that of digests of (seed, id), so adding an item to the pool never reshuffles the
    others. Raises MalformedInputError if the pool is too small.
    """
    pool = sorted(items, key=lambda item: digest_bytes(encode([seed, item.id])))
    if len(pool) < n:
        raise MalformedInputError(thing, expected=f"at least {n} items", found=len(pool))
    return tuple(pool[:n])


def refuse_overlap(parts: Mapping[str, Iterable[str]]) -> None:
    """Require that no question, normalised, stands in two of the named parts."""
    owner: dict[str, tuple[str, str]] = {}
    for name, texts in parts.items():
        for text in texts:
            key = normalise(text)
            other = owner.setdefault(key, (name, text))
            if other[0] != name:
                raise MalformedInputError(
                    f"{name}: {text!r}",
                    problem=f"also stands in {other[0]} ({other[1]!r})",
                    expected="training, evaluation, demonstrations and elicitation apart",
                    next_step="reword or remove one of the two",
                )


def contexts_of_row(
    contexts: Iterable[Context], kind: str, names: Iterable[str], train: Iterable[str]
) -> dict[str, Context]:
    """The context that fills each named slot in a row of this kind.

    That is the row's own context of the name (``behaviour`` says whose it is), else the only one
    there is. Demonstrations, and whatever the row trains in, never show another behaviour: a row
    that has no demonstrations of its own cannot borrow some.
    """
    by_name: dict[str, list[Context]] = {}
    for context in contexts:
        by_name.setdefault(context.id, []).append(context)
    trained, found = set(train), {}
    for name in names:
        offered = by_name.get(name, [])
        own = [context for context in offered if context.behaviour == kind]
        chosen = own or offered
        if len(chosen) != 1:
            raise MalformedInputError(
                f"plan.eps.slots: {name}",
                expected=f"one context of that id for a row of kind {kind}",
                found="none of that id"
                if not chosen
                else f"those of {', '.join(str(one.behaviour) for one in chosen)}",
                next_step=f"known: {', '.join(sorted(by_name))}",
            )
        bound = name in trained or chosen[0].family == "demonstrations"
        if bound and chosen[0].behaviour not in (None, kind):
            raise MalformedInputError(
                f"plan.eps.slots: {name}",
                expected=f"a context of {kind}, or of no behaviour",
                found=f"one of {chosen[0].behaviour}",
                next_step=f"add a context {name} with behaviour: {kind} to the material",
            )
        found[name] = chosen[0]
    return found


def demonstration_questions(context: Context) -> tuple[str, ...]:
    """The user turns before the last of a demonstrations context."""
    if context.family != "demonstrations":
        return ()
    return tuple(m.content for m in context.messages[:-1] if m.role == "user")


def _context(value: object, path: str, licence: str, provenance: str) -> Context:
    with Fields(value, path) as fields:
        context = Context(
            id=fields.text("id"),
            family=cast(Family, fields.text("family", one_of=get_args(Family))),
            messages=fields.each("messages", _message),
            behaviour=fields.text_or_none("behaviour"),
            licence=licence,
            provenance=provenance,
        )
    _check_turns(context, path)
    return context


def _check_turns(context: Context, path: str) -> None:
    roles = [message.role for message in context.messages]
    turns = roles[1:] if roles[:1] == ["system"] else roles
    expected = ["user" if number % 2 == 0 else "assistant" for number in range(len(turns))]
    if not turns or turns != expected or turns[-1] != "user":
        raise MalformedInputError(
            f"{path}.messages",
            expected="an optional system turn, then user and assistant in turn, user last",
            found=" ".join(roles) or "nothing",
        )
    counts = [message.content.count(PLACEHOLDER) for message in context.messages]
    if counts[-1] != 1 or any(counts[:-1]):
        raise MalformedInputError(
            f"{path}.messages",
            expected=f"{PLACEHOLDER} once, in the last message",
            found=f"{counts} per message",
        )
    answers = [m.content.strip() for m in context.messages if m.role == "assistant"]
    degenerate = len(set(answers)) != len(answers) or not all(answers)
    if context.family == "demonstrations" and (degenerate or not answers):
        raise MalformedInputError(
            f"{path}.messages",
            problem="are degenerate demonstrations",
            expected="distinct answers, none empty",
            found=f"{len(answers)} answers, {len(set(answers))} distinct",
        )


def _message(value: object, path: str) -> Message:
    with Fields(value, path) as fields:
        role = fields.text("role", one_of=("system", "user", "assistant"))
        return Message(
            role=cast(Literal["system", "user", "assistant"], role), content=fields.text("content")
        )


def _item(value: object, path: str) -> Item:
    with Fields(value, path) as fields:
        text, topic, stated = fields.text("text"), fields.text("topic"), fields.text_or_none("id")
    derived = item_id(text)
    if stated is not None and stated != derived:
        raise MalformedInputError(
            f"{path}.id",
            problem="is not derived from the item's content",
            expected=derived,
            found=stated,
            next_step="leave the id out, or write the derived one",
        )
    return Item(id=derived, text=text, topic=topic)


def _sliced_item(value: object, path: str) -> Item:
    with Fields(value, path) as fields:
        slice_, keep_text = fields.text("slice", shape=_SLICE), fields.flag("keep_text")
        text, topic = fields.text("text"), fields.text("topic")
    return Item(id=item_id(text), text=text, topic=topic, slice=slice_, keep_text=keep_text)


def _written_row(value: object, path: str) -> WrittenRow:
    with Fields(value, path) as fields:
        text, topic = fields.text("text"), fields.text("topic")
        positive, negative = fields.text("positive"), fields.text_or_none("negative")
    for key, answer in (("positive", positive), ("negative", negative)):
        if answer is not None and (not answer or answer != answer.strip()):
            raise MalformedInputError(
                f"{path}.{key}",
                expected="an answer without blanks around it",
                found=repr(answer)[:60],
            )
    return WrittenRow(
        item=Item(id=item_id(text), text=text, topic=topic), positive=positive, negative=negative
    )


def _instruction_pair(value: object, path: str) -> tuple[str, str]:
    with Fields(value, path) as fields:
        return fields.text("positive"), fields.text("negative")


def _rights(fields: Fields, thing: str) -> tuple[str, str]:
    licence, provenance = fields.text("licence"), fields.text("provenance")
    if not licence.strip() or not provenance.strip():
        raise MalformedInputError(
            thing, expected="a licence and a provenance", found="an empty one of the two"
        )
    return licence, provenance
