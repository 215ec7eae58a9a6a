"""From a spec and its files to the sampled document: screened, counted, drawn by digests.

The order of files and rows decides nothing, and a row that is added moves no other: every row has
its place in every slot's queue by a digest of (seed, slot, content).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eps_locked.canonical import digest_bytes, encode
from eps_locked.data import claims, conversations, pairs, personas, requests
from eps_locked.data.candidates import Candidate, Dropped, Read, RowRead
from eps_locked.data.conversations import PrefixLength
from eps_locked.data.obtain import Obtain, verify_files
from eps_locked.data.sampled import SCHEMA, read_sampled
from eps_locked.data.spec import Slot, SourceSpec, read_spec
from eps_locked.data.text import PLACEHOLDER, NearCopies, TextScreen, normalise
from eps_locked.domain.model import ChatTokenizer
from eps_locked.errors import MalformedInputError

Reader = Callable[[SourceSpec, Mapping[str, bytes]], Iterator[Read]]
_READERS: dict[str, Reader] = {
    "wildchat_prefixes": conversations.read_conversations,
    "personahub_personas": personas.read_personas,
    "xstest": requests.read_xstest,
    "xstest_answers": requests.read_xstest_answers,
    "harm_requests": requests.read_table,
    "em_questions": requests.read_em_questions,
    "claims": claims.read_claims,
    "feedback": claims.read_feedback,
    "em_rows": pairs.read_em_rows,
}
_PERSONAS = "personahub_personas"


class TopicScreen(Protocol):
    """A closer look at a candidate than word lists, for example a judge's; asked once for each.

    Only candidates about to be drawn are shown. ``name`` stands in the sampled document.
    """

    name: str

    def accepts(self, text: str, topic: str | None) -> bool: ...


@dataclass(slots=True)
class _Use:
    """A use of a row on its way: what became of it, and how many tokens it has."""

    row: RowRead
    candidate: Candidate
    fault: str | None
    n_tokens: int | None = None
    slot: Slot | None = None


@dataclass(slots=True)
class _Pool:
    """All rows of a source: those that could not be read, and the uses of the others."""

    unread: list[Dropped] = field(default_factory=list)
    rows: list[list[_Use]] = field(default_factory=list)

    def standing(self) -> list[_Use]:
        return [use for uses in self.rows for use in uses if use.fault is None]

    def counts(self) -> dict[str, Any]:
        """What became of every row: a row is kept if any of its uses was drawn."""
        dropped = Counter(row.reason for row in self.unread)
        kept = unused = 0
        for uses in self.rows:
            if any(use.slot is not None for use in uses):
                kept += 1
            elif all(use.fault is not None for use in uses):
                dropped[uses[0].fault or ""] += 1
            else:
                unused += 1
        return {
            "read": len(self.unread) + len(self.rows),
            "kept": kept,
            "unused": unused,
            "dropped": dict(sorted(dropped.items())),
        }


def sample(
    spec_bytes: bytes,
    thing: str,
    obtain: Obtain,
    tokenizer: ChatTokenizer | None,
    *,
    forbid: Sequence[str] = (),
    topic_screen: TopicScreen | None = None,
) -> bytes:
    """The canonical bytes of the sampled document of a spec.

    ``thing`` names the spec in errors. ``tokenizer`` is the plan's own; only contexts need it.
    ``forbid`` are further words of the plan (a marker, a fact) that no row may hold; they are
    recorded. Raises MalformedInputError for a spec or a file that is not what it should be, and
    for a slot that cannot be filled, with the counts that say why.
    """
    spec = read_spec(spec_bytes, thing)
    contents = obtain(spec)
    verify_files(spec, contents)
    document = _head(spec, contents, forbid)
    if spec.part == "elicitation":
        material = pairs.read_elicitation(spec, contents)
        document |= {"counts": _elicitation_counts(material), "elicitation": material}
        return _checked(document, thing)
    pool = _read(spec, contents, forbid)
    _drop_duplicates(pool)
    _drop_misfits(spec, pool)
    if spec.part == "contexts":
        _measure(spec, pool, _required(tokenizer, spec))
        document |= {"template": _required(tokenizer, spec).template_digest}
    drawn = _draw(spec, pool, topic_screen)
    if topic_screen is not None:
        document |= {"topic_screen": topic_screen.name}
    document |= {"counts": pool.counts(), spec.part: [_entry(spec, use) for use in drawn]}
    return _checked(document, thing)


def _head(spec: SourceSpec, contents: Mapping[str, bytes], forbid: Sequence[str]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "name": spec.name,
        "kind": spec.kind,
        "spec": spec.digest,
        "dataset": spec.dataset,
        "revision": spec.revision,
        "licence": spec.licence,
        "redistribute": spec.redistribute,
        "seed": spec.seed,
        "files": {
            file.path: {
                "digest": digest_bytes(contents[file.path]),
                "size": len(contents[file.path]),
                "pinned_by": file.pinned_by,
            }
            for file in spec.files
        },
        "forbidden": sorted({*spec.screens.forbid, *forbid}),
        "template": None,
        "topic_screen": "words" if spec.kind == "wildchat_prefixes" else None,
    }


def _checked(document: dict[str, Any], thing: str) -> bytes:
    """The document's bytes, read back by the reader that every later user goes through."""
    data = encode(document)
    read_sampled(data, f"{thing} (sampled)")
    return data


def _required(tokenizer: ChatTokenizer | None, spec: SourceSpec) -> ChatTokenizer:
    if tokenizer is None:
        raise TypeError(f"{spec.thing}: sampling contexts counts tokens, and needs a tokenizer")
    return tokenizer


def _elicitation_counts(material: Mapping[str, Any]) -> dict[str, Any]:
    n = sum(
        len(material[key])
        for key in ("instruction_pairs", "questions_extract", "questions_evaluate")
    )
    return {"read": n, "kept": n, "unused": 0, "dropped": {}}


def _read(spec: SourceSpec, contents: Mapping[str, bytes], forbid: Sequence[str]) -> _Pool:
    screen = TextScreen(spec.screens, forbid)
    pool = _Pool()
    for found in _READERS[spec.kind](spec, contents):
        if isinstance(found, Dropped):
            pool.unread.append(found)
            continue
        pool.rows.append(
            [
                _Use(row=found, candidate=use, fault=screen.fault(use.raw) or use.fault)
                for use in found.uses
            ]
        )
    return pool


def _drop_duplicates(pool: _Pool) -> None:
    """Of uses with the same content keep the least by digest, whatever order they came in."""
    # The content of a row fixes its digest, so ties are the same row again; the upstream id
    # breaks them, because it is the only other thing that gets recorded.
    first: dict[tuple[str | None, str], _Use] = {}
    for use in sorted(pool.standing(), key=lambda use: (use.row.digest, use.row.upstream_id or "")):
        key = (use.candidate.group, _content_key(use.candidate.content))
        if first.setdefault(key, use) is not use:
            use.fault = "duplicate"


def _content_key(content: str) -> str:
    # A content without any word (an emoji, a formula) is itself, not the same as every other.
    return normalise(content) or content


def _measure(spec: SourceSpec, pool: _Pool, tokenizer: ChatTokenizer) -> None:
    """Count tokens, last of all screens because it takes longest."""
    prefix_length = PrefixLength(tokenizer)
    for use in pool.standing():
        candidate = use.candidate
        if spec.kind == _PERSONAS:
            use.n_tokens = len(tokenizer.encode(candidate.content))
            low, high = spec.options["tokens"]
            fewest, most = spec.options["sentences"]
            if not fewest <= personas.count_sentences(candidate.content) <= most:
                use.fault = "sentences"
                continue
        else:
            use.n_tokens = prefix_length(candidate.messages)
            low, high = spec.options["bins"][candidate.group].tokens
        if not low <= use.n_tokens <= high:
            use.fault = "tokens"


def _fits(slot: Slot, candidate: Candidate) -> bool:
    return slot.group in (None, candidate.group) and (
        slot.topics is None or candidate.topic in slot.topics
    )


def _drop_misfits(spec: SourceSpec, pool: _Pool) -> None:
    for use in pool.standing():
        if spec.kind == "wildchat_prefixes" and use.candidate.topic is None:
            use.fault = "no_topic"
        elif not any(_fits(slot, use.candidate) for slot in spec.slots):
            use.fault = "no_slot"


def _draw(spec: SourceSpec, pool: _Pool, screen: TopicScreen | None) -> list[_Use]:
    seen = NearCopies(spec.screens.near_copy)
    drawn: list[_Use] = []
    used: set[str] = set()
    for slot in spec.slots:
        taken = 0
        for use in _queue(spec, slot, pool.standing()):
            if taken == slot.n:
                break
            if use.row.digest in used:
                continue
            content = use.candidate.content
            if seen.like(content) is not None:
                use.fault = "near_copy"
            elif screen is not None and not screen.accepts(content, use.candidate.topic):
                use.fault = "topic_screen"
            else:
                seen.add(content)
                used.add(use.row.digest)
                use.slot = slot
                drawn.append(use)
                taken += 1
        _require_filled(spec, slot, taken, pool)
    return drawn


def _queue(spec: SourceSpec, slot: Slot, uses: Iterable[_Use]) -> list[_Use]:
    fitting = [use for use in uses if use.slot is None and _fits(slot, use.candidate)]
    return sorted(
        fitting, key=lambda use: digest_bytes(encode([spec.seed, slot.name, use.row.digest]))
    )


def _require_filled(spec: SourceSpec, slot: Slot, taken: int, pool: _Pool) -> None:
    wanted = 1 if slot.n is None else slot.n
    if taken < wanted:
        counts = pool.counts()
        raise MalformedInputError(
            f"source {spec.name}: slot {slot.name}",
            expected=f"{wanted} row{'s' if wanted > 1 else ''} that fit",
            found=taken,
            next_step="name more files, or mend the filters",
            details=(
                *(f"{counts[key]} {key}" for key in ("read", "kept", "unused")),
                *(f"{n} dropped: {reason}" for reason, n in counts["dropped"].items()),
            ),
        )


def _entry(spec: SourceSpec, use: _Use) -> dict[str, Any]:
    assert use.slot is not None
    origin = {"row": use.row.digest, "upstream_id": use.row.upstream_id}
    entry = dict(use.candidate.entry)
    if spec.part == "contexts":
        return _context_entry(spec, use, entry) | origin
    if spec.part == "items":
        entry |= {"topic": use.candidate.topic or "", "keep_text": spec.keep_text}
    elif spec.part == "rows":
        entry |= {"topic": use.candidate.topic or ""}
    return entry | {"slice": use.slot.name} | origin


def _context_entry(spec: SourceSpec, use: _Use, entry: dict[str, Any]) -> dict[str, Any]:
    assert use.slot is not None
    messages = [{"role": one.role, "content": one.content} for one in use.candidate.messages]
    return {
        **entry,
        "id": use.slot.name,
        "family": "persona" if spec.kind == _PERSONAS else "prefix",
        "behaviour": None,
        "messages": [*messages, {"role": "user", "content": PLACEHOLDER}],
        "licence": spec.licence,
        "provenance": f"{spec.provenance} row {use.row.digest}",
        "bin": use.candidate.group,
        "topic": use.candidate.topic,
        "n_tokens": use.n_tokens,
    }
