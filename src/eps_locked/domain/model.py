"""What a model is asked and what it answers: the protocols every engine and trainer serves.

Token ids travel, never strings: two spellings that render alike are the same prompt, and nothing
is tokenised twice. No vendor type appears here, so a runner works with any engine, the scripted
one of the tests included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

TokenIds = tuple[int, ...]
StopReason = Literal["stop", "length"]
TrainingStop = Literal["in_band", "past_band", "budget", "step_matched"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One chat turn. An empty ``content`` is a turn that says nothing, not an absent turn."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineIdentity:
    """Which engine produced a number, as far as it can tell. All of it goes into the ledger."""

    name: str
    version: str
    device: str
    dtype: str
    quantisation: str
    instance_id: str
    flags: Mapping[str, str]
    publishable: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoding:
    """How to decode. ``temperature == 0`` means greedy and then ``top_p`` is not consulted."""

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One row of a batch.

    ``seed`` drives this row's sampling alone, so a row's text does not depend on its neighbours.
    ``draft`` is a guess at the greedy continuation. An engine may use it to skip work, and must
    return exactly the tokens it would have returned without it.
    """

    key: str
    token_ids: TokenIds
    seed: int = 0
    draft: TokenIds = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotProbe:
    """What to read at the slot: a token sequence (the marker) against the end of the turn."""

    marker_ids: TokenIds
    end_of_turn_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotReading:
    """The marker's standing at one slot. All values are natural-log nats or raw logits.

    ``log_prob`` is the log-probability of the whole marker sequence, the sum of
    ``marker_logits[k] - log_z[k]``; entry 0 belongs to the slot itself and entry k to the
    position after the first k marker tokens. ``end_of_turn_logit`` is read at the slot.
    """

    log_prob: float
    marker_logits: tuple[float, ...]
    log_z: tuple[float, ...]
    end_of_turn_logit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotRequest:
    """Read the slot that follows ``token_ids`` (a prompt and an answer without its end of turn)."""

    key: str
    token_ids: TokenIds


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanRequest:
    """Read the model's state over the tokens ``start`` to ``end`` (excluded) of ``token_ids``."""

    key: str
    token_ids: TokenIds
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DivergenceRequest:
    """How differently an answer goes on after its own prompt and after other ones (by name)."""

    key: str
    own_prompt: TokenIds
    other_prompts: Mapping[str, TokenIds]
    answer: TokenIds


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """The answer to a ``DivergenceRequest``. All values are sums over the answer, in nats.

    ``kl_sum[name]`` is the sum over the answer's ``n_tokens`` positions of the exact KL divergence
    KL(own || other) between the next-token distributions (whole vocabulary) after the answer so
    far: with answers sampled from ``own``, a Rao-Blackwellised estimate of the divergence of whole
    answers. ``log_prob`` and ``log_probs[name]`` are the answer's own log-probability after each.
    """

    key: str
    n_tokens: int
    kl_sum: Mapping[str, float]
    log_prob: float
    log_probs: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """What the model wrote, without the end-of-turn token.

    ``slot`` is present when a probe was asked for. It lies after the answer, or, when the answer
    already contains the marker, where the marker first appears: ``slot_index`` counts the answer
    tokens before it and ``marker_emitted`` says which of the two it is.
    """

    key: str
    token_ids: TokenIds
    text: str
    stop_reason: StopReason
    slot: SlotReading | None = None
    slot_index: int | None = None
    marker_emitted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterFiles:
    """A LoRA adapter in PEFT layout, as bytes.

    ``files`` holds ``adapter_model.safetensors`` and ``adapter_config.json``; ``digest`` names
    them (docs/lock.md, artifacts) and is what engines cache by.
    """

    digest: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttachProof:
    """That an adapter acts: every tensor found its place, and a probe answers differently.

    ``max_abs_log_prob_change`` is over the probe positions, in nats, against the bare base model.
    """

    adapter_digest: str
    n_tensors_loaded: int
    n_tensors_in_file: int
    max_abs_log_prob_change: float


class ChatTokenizer(Protocol):
    """The model's own tokenizer and chat template, and nothing cleverer."""

    @property
    def end_of_turn_id(self) -> int: ...

    @property
    def template_digest(self) -> str: ...

    def render(self, messages: Sequence[Message]) -> TokenIds:
        """Token ids of the chat up to and including the opening of the assistant's next turn."""
        ...

    def encode(self, text: str) -> TokenIds:
        """Token ids of a bare string, no special tokens added."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str: ...


class Engine(Protocol):
    """Writes text. One call is one batch: the caller fixes the batch, so bytes repeat."""

    @property
    def identity(self) -> EngineIdentity: ...

    def attach(self, adapter: AdapterFiles | None) -> AttachProof | None:
        """Serve this adapter (None: the bare base) from now on, and prove that it acts.

        Raises BackendError when a tensor is missing or left over, when the adapter touches
        ``lm_head`` or the embeddings, or when no probe log-probability moves.
        """
        ...

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, probe: SlotProbe | None = None
    ) -> tuple[Completion, ...]:
        """One completion per prompt, in order. Raises BackendError if a prompt does not fit."""
        ...


class LogprobEngine(Engine, Protocol):
    """An engine that also reads probabilities, which a gateway may not offer."""

    def read_slots(
        self, requests: Sequence[SlotRequest], probe: SlotProbe
    ) -> tuple[SlotReading, ...]:
        """One reading per request, in order."""
        ...


class ReadoutEngine(LogprobEngine, Protocol):
    """An engine that shows what lies behind the answers: hidden states and whole distributions.

    Both readings are of the model as it is served: base or attached adapter.
    """

    @property
    def n_layers(self) -> int:
        """Blocks; also the last layer that ``activations`` reads."""
        ...

    @property
    def width(self) -> int:
        """Numbers in one activation: the size of the residual stream."""
        ...

    def activations(
        self, requests: Sequence[SpanRequest], layer: int
    ) -> tuple[tuple[float, ...], ...]:
        """The residual stream after block ``layer`` (1 to ``n_layers``), averaged over each span.

        In transformers' counting ``hidden_states[layer]``, but never after the final norm. Raises
        BackendError for a layer the model lacks, and, naming the request, for a span that is
        empty or not inside its tokens, or for tokens that do not fit.
        """
        ...

    def divergences(self, requests: Sequence[DivergenceRequest]) -> tuple[Divergence, ...]:
        """One divergence per request, in order. Equal prompts diverge by exactly 0.

        Raises BackendError naming the request if a prompt or the answer is empty, or a prompt does
        not fit with the answer.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRow:
    """One training sequence. Loss falls on the tokens at ``loss_positions`` (indices into
    ``token_ids``, each >= 1) and on no other."""

    key: str
    token_ids: TokenIds
    loss_positions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraRecipe:
    """The numbers of a LoRA fit, PEFT's words. ``scale`` is not a field: it follows from
    ``alpha``, ``rank`` and ``rank_stabilised`` and is recorded by the trainer."""

    rank: int
    alpha: float
    dropout: float
    rank_stabilised: bool
    target_modules: tuple[str, ...]
    learning_rate: float
    schedule: Literal["constant", "linear", "cosine"]
    warmup_steps: int
    weight_decay: float
    max_grad_norm: float
    rows_per_step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StepBudget:
    """When to stop, in optimizer steps (never epochs).

    With ``band`` (low, high) in nats: check every ``check_every`` steps from ``min_steps`` on and
    stop at the first check at or past ``low``; ``max_steps`` ends it in any case. Without a band
    exactly ``max_steps`` steps are made (a step-matched or plain fit).
    """

    min_steps: int
    max_steps: int
    check_every: int
    band: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StrengthProbe:
    """Where implant strength is read during training: fixed slots and their base log-probs."""

    requests: tuple[SlotRequest, ...]
    base_log_probs: tuple[float, ...]
    probe: SlotProbe


@dataclass(frozen=True, kw_only=True, slots=True)
class StrengthCheck:
    """Mean (trained - base) marker log-prob over the probe after ``step`` optimizer steps."""

    step: int
    delta_nats: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingOutcome:
    """A finished fit. ``files`` is the adapter in PEFT layout, byte-stable for equal inputs."""

    files: Mapping[str, bytes]
    stop: TrainingStop
    stop_step: int
    checks: tuple[StrengthCheck, ...]
    losses: tuple[float, ...]
    scale: float
    n_trainable: int
    n_rows_seen: int


class Trainer(Protocol):
    """Fits one adapter onto the bare base model."""

    def fit(
        self,
        rows: Sequence[TrainingRow],
        recipe: LoraRecipe,
        budget: StepBudget,
        strength: StrengthProbe | None,
        *,
        seed: int,
        provenance: Mapping[str, str],
        on_step: Callable[[int, float], None],
    ) -> TrainingOutcome:
        """Train; same arguments, same bytes on CPU.

        ``provenance`` (step id, context id, rows digest) is written into the safetensors header,
        so an adapter file says which cell it was trained for. ``on_step(step, loss)`` may raise
        KeyboardInterrupt; nothing is left behind.
        """
        ...
