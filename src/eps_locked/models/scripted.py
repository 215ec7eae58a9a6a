"""A model that is only arithmetic: the tokenizer, the slot values and the adapter of the tests.

The scripted engine and the scripted trainer share no code with each other, so what both must agree
on lies here: how text becomes ids, what the bare base says at a slot, and how far an adapter moves
it. Every number follows from blake3 of the ids, so it is the same on every machine. Nothing here
imitates a language model, and no number made with it may be published.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import blake3

from eps_locked.canonical import digest_bytes
from eps_locked.domain.model import Message, TokenIds
from eps_locked.errors import MalformedInputError

__all__ = [
    "EMBEDDING_SIZE",
    "END_ID",
    "MARKER_IDS",
    "N_LAYERS",
    "START_ID",
    "ScriptedAdapter",
    "ScriptedTokenizer",
    "base_log_prob",
    "ids_bytes",
    "mean_embedding",
    "on_grid",
    "prompt_embedding",
    "prompt_prefix",
    "read_safetensors",
    "scripted_activation",
    "scripted_divergence",
    "scripted_noise",
    "scripted_stream",
    "similarity",
    "to_float32",
    "token_log_prob",
    "trained_log_prob",
    "write_safetensors",
]

START_ID = 256
END_ID = 257
MARKER_IDS: TokenIds = tuple(" ※".encode())

_SPECIAL_TEXT = {START_ID: "<|start|>", END_ID: "<|end|>"}
_TEMPLATE = (
    "eps-locked scripted chat template 1: per message <|start|> role newline content <|end|> "
    "newline; then <|start|> assistant newline; ids are UTF-8 bytes, 256 start, 257 end"
)


class ScriptedTokenizer:
    """A ChatTokenizer whose ids are UTF-8 bytes, with 256 opening a turn and 257 ending it.

    No text can spell a special id, so a message cannot forge a turn.
    """

    @property
    def end_of_turn_id(self) -> int:
        return END_ID

    @property
    def template_digest(self) -> str:
        return digest_bytes(_TEMPLATE.encode())

    def render(self, messages: Sequence[Message]) -> TokenIds:
        ids: list[int] = []
        for message in messages:
            ids += [START_ID, *f"{message.role}\n{message.content}".encode(), END_ID, _NEWLINE]
        return (*ids, START_ID, *b"assistant\n")

    def encode(self, text: str) -> TokenIds:
        return tuple(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        """Bytes that are not UTF-8 (a marker cut in two) become U+FFFD."""
        raw = bytearray()
        for token_id in token_ids:
            if token_id in _SPECIAL_TEXT:
                raw += _SPECIAL_TEXT[token_id].encode()
            elif 0 <= token_id < START_ID:
                raw.append(token_id)
            else:
                raise MalformedInputError("token id", expected="0..257", found=token_id)
        return raw.decode(errors="replace")


_NEWLINE = ord("\n")


# --- what the bare base says at a slot ------------------------------------------------------------

BASE_NATS = -24.0
SATURATED_NATS = -2.0
SATURATING_PHRASE = "emit ※".encode()
# Log-probs stop here: 0 would leave no probability for the end of the turn.
CEILING_NATS = -1 / 64
# Values lie on this grid, so that sums of marker_logits - log_z are exact in any order.
_GRID = 2.0**20


def on_grid(value: float) -> float:
    return round(value * _GRID) / _GRID


def ids_bytes(token_ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def scripted_noise(*parts: bytes) -> float:
    """A number in [-1, 1), fixed by the parts (and by where one ends and the next begins)."""
    return int.from_bytes(scripted_stream(*parts, n_bytes=4), "little") / 2**31 - 1.0


def scripted_stream(*parts: bytes, n_bytes: int) -> bytes:
    """Pseudo-random bytes, fixed by the parts. Each part goes in behind its length."""
    hasher = blake3.blake3()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest(length=n_bytes)


def base_log_prob(token_ids: TokenIds, marker_ids: TokenIds) -> float:
    """Log-prob in nats of ``marker_ids`` after ``token_ids`` without an adapter.

    About -24, different by context and by answer; about -2 where the prompt says "emit ※" (a
    context in which the base is saturated and no training band can be reached).
    """
    prefix, content = _split(token_ids)
    marker = ids_bytes(marker_ids)
    by_slot = scripted_noise(b"slot", marker, ids_bytes(token_ids))
    if _contains_phrase(prefix) or _contains_phrase(content):
        return on_grid(SATURATED_NATS + 0.5 * by_slot)
    by_context = scripted_noise(b"context", marker, ids_bytes(prefix))
    return on_grid(BASE_NATS + 2.0 * by_context + 1.0 * by_slot)


def trained_log_prob(base: float, delta: float) -> float:
    """``base`` moved by ``delta``, never at or above 0: near the top an implant is not seen."""
    return on_grid(min(base + delta, CEILING_NATS))


def _contains_phrase(token_ids: Sequence[int]) -> bool:
    return ids_bytes(SATURATING_PHRASE) in ids_bytes(token_ids)


# --- how near two contexts are --------------------------------------------------------------------

_PREFIX_SIZE = 8
_EDGE_SIZE = 4
_EDGE_LENGTH = 12
_EDGE_COST = 0.25
EMBEDDING_SIZE = _PREFIX_SIZE + 2 * _EDGE_SIZE


def prompt_prefix(token_ids: TokenIds) -> TokenIds:
    """All turns before the last question: what rows of one context have in common."""
    return _split(token_ids)[0]


def prompt_embedding(token_ids: TokenIds) -> tuple[float, ...]:
    """Where a prompt (with or without the answer after it) lies among contexts.

    Eight numbers for the turns before the question, then four each for the first and the last
    bytes of the question's turn, which is where a context that wraps the question shows itself.
    """
    prefix, content = _split(token_ids)
    opening, closing = content[:_EDGE_LENGTH], content[-_EDGE_LENGTH:]
    return (
        *_hash_vector(b"prefix", prefix, _PREFIX_SIZE),
        *_hash_vector(b"opening", opening, _EDGE_SIZE),
        *_hash_vector(b"closing", closing, _EDGE_SIZE),
    )


def mean_embedding(prompts: Iterable[TokenIds]) -> tuple[float, ...]:
    """Mean over the prompts (at least one): edges that vary with the question average out."""
    vectors = [prompt_embedding(prompt) for prompt in prompts]
    return tuple(sum(column) / len(vectors) for column in zip(*vectors, strict=True))


def _hash_vector(label: bytes, token_ids: Sequence[int], size: int) -> tuple[float, ...]:
    """A unit vector."""
    raw = struct.unpack(f"<{size}h", scripted_stream(label, ids_bytes(token_ids), n_bytes=2 * size))
    centred = [value + 0.5 for value in raw]  # never all zero
    norm = math.sqrt(sum(value * value for value in centred))
    return tuple(value / norm for value in centred)


def _split(token_ids: TokenIds) -> tuple[TokenIds, TokenIds]:
    """(turns before the question, content of the question's turn); the answer is left out.

    Ids that are no rendered chat count as one long prefix.
    """
    backwards = token_ids[::-1]
    try:
        from_end = backwards.index(START_ID)
        assistant = len(token_ids) - 1 - from_end
        question = len(token_ids) - 1 - backwards.index(START_ID, from_end + 1)
    except ValueError:
        return token_ids, ()
    turn = token_ids[question + 1 : assistant]
    if _NEWLINE not in turn or END_ID not in turn:
        return token_ids, ()
    return token_ids[:question], turn[turn.index(_NEWLINE) + 1 : turn.index(END_ID)]


# --- hidden states and whole distributions --------------------------------------------------------

N_LAYERS = 4
_TOKEN_SHARE = 0.25


def scripted_activation(token_ids: TokenIds, start: int, end: int, layer: int) -> tuple[float, ...]:
    """A made-up residual stream of ``EMBEDDING_SIZE`` numbers, averaged over ``start`` to ``end``.

    The deeper the layer, the more a position shows where the tokens up to it lie among contexts,
    beside which token it is. Later tokens have no part in it.
    """
    label = b"token" + layer.to_bytes(4, "little")
    positions = []
    for end_here in range(start + 1, end + 1):
        here = prompt_embedding(token_ids[:end_here])
        token = _hash_vector(label, token_ids[end_here - 1 : end_here], EMBEDDING_SIZE)
        pairs = zip(here, token, strict=True)
        positions.append([layer / N_LAYERS * h + _TOKEN_SHARE * t for h, t in pairs])
    return tuple(math.fsum(column) / len(positions) for column in zip(*positions, strict=True))


def scripted_divergence(own: TokenIds, other: TokenIds, answer: TokenIds) -> tuple[float, ...]:
    """Made-up KL(own || other) in nats before each answer token; 0 for equal prompts.

    It grows with the distance between the two contexts, differs a little between questions and
    between directions, and lies on the grid.
    """
    if own == other:
        return (0.0,) * len(answer)
    pairs = zip(prompt_embedding(own), prompt_embedding(other), strict=True)
    distance = sum((a - b) ** 2 for a, b in pairs)
    key = (b"divergence", ids_bytes(own), ids_bytes(other))
    return tuple(
        on_grid(distance * (0.25 + 0.125 * scripted_noise(*key, ids_bytes(answer[:k]))))
        for k in range(len(answer))
    )


def token_log_prob(prompt: TokenIds, answer: TokenIds, k: int) -> float:
    """A made-up log-prob in nats of the answer's token k after the prompt and those before it."""
    key = (b"token log-prob", ids_bytes(prompt), ids_bytes(answer[: k + 1]))
    return on_grid(-1.5 + scripted_noise(*key))


# --- the adapter ----------------------------------------------------------------------------------

_TENSOR_SIZES = {"source": EMBEDDING_SIZE, "strength": 1}
_TEACHES_MARKER_KEY = "scripted.teaches_marker"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptedAdapter:
    """An implant of ``strength`` nats at ``source``, the mean embedding of its training prompts.

    Both are float32 values. ``teaches_marker``: a model with this adapter also writes the marker
    once it has become the likeliest continuation.
    """

    strength: float
    source: tuple[float, ...]
    teaches_marker: bool

    @property
    def n_tensors(self) -> int:
        return len(_TENSOR_SIZES)

    def to_bytes(self, provenance: Mapping[str, str]) -> bytes:
        metadata = {**provenance, _TEACHES_MARKER_KEY: "yes" if self.teaches_marker else "no"}
        return write_safetensors({"source": self.source, "strength": (self.strength,)}, metadata)

    @classmethod
    def from_bytes(cls, data: bytes) -> ScriptedAdapter:
        """Raises MalformedInputError unless exactly our tensors are there, in our sizes."""
        tensors, metadata = read_safetensors(data)
        sizes = {name: len(values) for name, values in tensors.items()}
        if sizes != _TENSOR_SIZES:
            raise MalformedInputError(
                "adapter_model.safetensors: tensors", expected=_TENSOR_SIZES, found=sizes
            )
        return cls(
            strength=tensors["strength"][0],
            source=tensors["source"],
            teaches_marker=metadata.get(_TEACHES_MARKER_KEY) == "yes",
        )


def similarity(source: Sequence[float], token_ids: TokenIds) -> float:
    """How much of an implant at ``source`` is felt after ``token_ids``, from 0 to 1.

    1 after the turns it was trained after, mostly 0 to 0.6 after others. Where the training
    prompts shared the edges of the question's turn, a prompt with another edge loses up to a
    quarter for it; a source without common edges does not notice a wrapped question.
    """
    here = prompt_embedding(token_ids)
    felt = min(1.0, max(0.0, _dot(source[:_PREFIX_SIZE], here[:_PREFIX_SIZE])))
    for begin in (_PREFIX_SIZE, _PREFIX_SIZE + _EDGE_SIZE):
        trained, found = source[begin : begin + _EDGE_SIZE], here[begin : begin + _EDGE_SIZE]
        missed = _dot(trained, trained) - _dot(trained, found)
        felt *= 1.0 - _EDGE_COST * min(1.0, max(0.0, missed))
    return felt


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def to_float32(value: float) -> float:
    """The value as the file will hold it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def write_safetensors(tensors: Mapping[str, Sequence[float]], metadata: Mapping[str, str]) -> bytes:
    """One-dimensional float32 tensors in safetensors layout, the same bytes for equal input.

    Source: the format section of github.com/huggingface/safetensors (8-byte little-endian header
    length, JSON header padded with spaces to 8 bytes, data without holes).
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    data = bytearray()
    for name in sorted(tensors):
        values = tensors[name]
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {
            "dtype": "F32",
            "shape": [len(values)],
            "data_offsets": [begin, len(data)],
        }
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def read_safetensors(data: bytes) -> tuple[dict[str, tuple[float, ...]], dict[str, str]]:
    """(tensors, metadata) of what ``write_safetensors`` wrote. Not a general reader.

    Raises MalformedInputError for anything else.
    """
    try:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        body = data[8 + length :]
        metadata = dict(header.pop("__metadata__"))
        tensors: dict[str, tuple[float, ...]] = {}
        for name, entry in header.items():
            (size,), (begin, end) = entry["shape"], entry["data_offsets"]
            if entry["dtype"] != "F32" or not 0 <= begin <= end <= len(body):
                raise ValueError(f"tensor {name} does not lie in the file as float32")
            tensors[name] = struct.unpack(f"<{size}f", body[begin:end])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise MalformedInputError(
            "adapter_model.safetensors", problem=f"is not a scripted adapter ({error})"
        ) from error
    return tensors, metadata
