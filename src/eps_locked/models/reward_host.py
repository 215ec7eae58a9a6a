"""One base model with a scalar head in memory, and the LoRA adapters on it: a reward model.

The reward of a text is the head's one number at the text's last token. Which token that is follows
from the row's length and from nothing else: transformers looks for the last token that is not the
padding token, and finds another one where a model pads with its end of turn.

The head is the model's own, one that came with an adapter, or a fresh one. A fresh head's weights
are drawn on the CPU in float32 from a normal distribution, mean 0 and a given deviation, by a
generator seeded with a given number. The head is float32 whatever the base is:
rewards are compared in their third digit, which bfloat16 has not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eps_locked.domain.model import AdapterFiles, LoraRecipe, TokenIds
from eps_locked.errors import BackendError
from eps_locked.models import adapter_format
from eps_locked.models.host import AdapterHost
from eps_locked.models.vendor import no_load_report

if TYPE_CHECKING:
    import torch

__all__ = ["RewardHost"]

_DTYPES = ("float32", "bfloat16")
_HEAD = "score.weight"
_HEAD_IN_FILE = f"base_model.model.{_HEAD}"


class RewardHost(AdapterHost):
    """A frozen base model with a scalar head and at most one active adapter; see AdapterHost.

    ``has_own_head``: the model's folder holds a head. Until ``attach`` or ``use_fresh_head`` says
    which head to use, there is none that means anything.
    """

    def __init__(self, model: Any, *, base_folder: Path, device: str, has_own_head: bool) -> None:
        """Take over a sequence classification model in memory; prefer ``load``."""
        import torch

        self.has_own_head = has_own_head
        super().__init__(model, base_folder=base_folder, device=device)
        self.model.score.to(torch.float32)
        head = self.model.score.weight
        self._base_parameters = [one for one in self._base_parameters if one is not head]
        self._own_head: torch.Tensor | None = head.detach().clone() if has_own_head else None
        self._heads: dict[str, torch.Tensor] = {}  # adapter's digest -> its head; a row of floats
        self._head_before: torch.Tensor | None = None

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        dtype: str,
        device: str,
        threads: int | None,
        attn_implementation: str = "sdpa",
    ) -> RewardHost:
        """Load the model in ``folder``; arguments as ``AdapterHost.load`` takes them.

        A folder without a head (a plain causal model) is taken: its head must be fresh or come
        with an adapter. Raises BackendError for a folder that does not load, for an architecture
        without a classification form, a head of more than one output, or one that is no ``score``
        layer on the last token, and for other weights that are missing.
        """
        if dtype not in _DTYPES:
            raise BackendError("dtype", expected=" or ".join(_DTYPES), found=dtype)
        import torch
        from transformers import AutoModelForSequenceClassification

        config = _read_config(folder)
        if threads is not None:
            torch.set_num_threads(threads)
        try:
            with no_load_report(), torch.random.fork_rng(devices=[]):
                model, found = AutoModelForSequenceClassification.from_pretrained(
                    str(folder),
                    config=config,
                    dtype=getattr(torch, dtype),
                    local_files_only=True,
                    attn_implementation=attn_implementation,
                    output_loading_info=True,
                )
                model = model.to(device)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise BackendError(
                str(folder),
                problem=f"the model does not load with a scalar head on {device}: {error}",
                next_step="check the folder with a fresh download, and that the device exists",
            ) from error
        missing = sorted(found["missing_keys"])
        _require_score(model, found["unexpected_keys"], folder)
        if set(missing) - {_HEAD}:
            raise BackendError(
                str(folder), expected="every weight but the head's", found=f"no {missing[0]}"
            )
        return cls(model, base_folder=Path(folder), device=device, has_own_head=not missing)

    @property
    def lm_head(self) -> Any:
        """Hidden states to one number each."""
        return self.model.score

    @property
    def max_positions(self) -> int | None:
        """The longest sequence the model has positions for, None where it does not say."""
        limit = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        return None if limit is None else int(limit)

    def rewards(self, sequences: Sequence[TokenIds]) -> torch.Tensor:
        """One float32 number a sequence, read at its last token; shape (B,). Carries gradients
        where the caller has them on.

        Rows are padded on the right, behind the token that is read and out of its sight.
        """
        import torch

        lengths_B = torch.tensor([len(ids) for ids in sequences])
        ids_BT = torch.zeros((len(sequences), int(lengths_B.max())), dtype=torch.long)
        mask_BT = torch.zeros_like(ids_BT)
        for row, ids in enumerate(sequences):
            ids_BT[row, : len(ids)] = torch.tensor(ids)
            mask_BT[row, : len(ids)] = 1
        states_BTD = self.body(
            input_ids=ids_BT.to(self.device),
            attention_mask=mask_BT.to(self.device),
            use_cache=False,
        ).last_hidden_state
        rows_B = torch.arange(len(sequences), device=states_BTD.device)
        last_BD = states_BTD[rows_B, (lengths_B - 1).to(states_BTD.device)]
        rewards_B1: torch.Tensor = self.model.score(last_BD.to(torch.float32))
        return rewards_B1[:, 0]

    def attach(self, files: AdapterFiles | None) -> int:
        """Serve this adapter with the head that came with it; None: the bare base with its own.

        As ``AdapterHost.attach``, and raises BackendError for an adapter without a head and for
        None where the model has none of its own.
        """
        if files is None and self._own_head is None:
            raise BackendError(
                str(self.base_folder),
                problem="has no scalar head of its own",
                expected=f"{_HEAD} among its weights",
                found="none",
                next_step="name a training, or a fresh head by seed and std",
            )
        n_tensors = super().attach(files)
        head = self._own_head if files is None else self._heads[files.digest]
        assert head is not None
        self._set_head(head)
        return n_tensors + (files is not None)

    def use_fresh_head(self, seed: int, std: float) -> None:
        """Serve the bare base with a fresh head (the module says how it is drawn)."""
        super().attach(None)
        self._set_head(self._drawn(seed, std))

    def new_trainable_head(
        self, recipe: LoraRecipe, seed: int, head: tuple[int, float]
    ) -> list[torch.nn.Parameter]:
        """A fresh adapter (``new_trainable``) and, last of the parameters, a fresh head."""
        before = self.model.score.weight.detach().clone()
        parameters = self.new_trainable(recipe, seed)
        self._head_before = before
        self._set_head(self._drawn(*head))
        weight = self.model.score.weight
        weight.requires_grad_(True)
        return [*parameters, weight]

    def export(
        self, recipe: LoraRecipe, provenance: Mapping[str, str], *, model_name: str
    ) -> dict[str, bytes]:
        """Adapter and head under training as PEFT's two files (``modules_to_save: [score]``)."""
        form = adapter_format.CLASSIFIER
        tensors = {
            **self._trained_tensors(),
            _HEAD_IN_FILE: self.model.score.weight.detach(),
        }
        return {
            adapter_format.CONFIG_NAME: adapter_format.config_bytes(recipe, model_name, form),
            adapter_format.WEIGHTS_NAME: adapter_format.safetensors_bytes(tensors, provenance),
        }

    def discard_trainable(self) -> None:
        """As AdapterHost's; the head is again what it was before the fit."""
        super().discard_trainable()
        self.model.score.weight.grad = None
        if self._head_before is not None:
            self._set_head(self._head_before)
            self._head_before = None

    def _read(self, files: AdapterFiles) -> tuple[Any, dict[str, torch.Tensor]]:
        config, tensors = adapter_format.parse(files, adapter_format.CLASSIFIER)
        head = tensors.pop(_HEAD_IN_FILE, None)
        expected = tuple(self.model.score.weight.shape)
        if head is None or tuple(head.shape) != expected:
            raise BackendError(
                f"adapter {files.digest}: {_HEAD_IN_FILE}",
                expected=f"a head of shape {expected}",
                found="none" if head is None else f"shape {tuple(head.shape)}",
                next_step="train the adapter with modules_to_save: [score] on this base model",
            )
        self._heads[files.digest] = head
        return config, tensors

    def _drawn(self, seed: int, std: float) -> torch.Tensor:
        import torch

        generator = torch.Generator(device="cpu").manual_seed(seed)
        drawn = torch.empty(self.model.score.weight.shape, dtype=torch.float32, device="cpu")
        return drawn.normal_(0.0, std, generator=generator)

    def _set_head(self, weight: torch.Tensor) -> None:
        self.model.score.weight.data.copy_(weight)

    def _require_plain_output(self) -> None:
        """The reward must be ``score`` of the last state: ``rewards`` computes it so."""
        import torch

        padding = getattr(self.config.get_text_config(), "pad_token_id", None)
        ids = torch.tensor([[one for one in (0, 1, 2) if one != padding]], device=self.device)
        with torch.no_grad():
            whole = self.model(input_ids=ids, use_cache=False).logits[0]
            states = self.body(input_ids=ids, use_cache=False).last_hidden_state
            parts = self.lm_head(states)[0, -1]
        if not torch.allclose(whole.float(), parts.float(), atol=1e-3, rtol=1e-3):
            raise BackendError(
                str(self.base_folder),
                problem="its reward is not its score layer at the last token",
                next_step="score with the model's own code, and hand the scores in as a table",
            )


def _read_config(folder: Path) -> Any:
    """The folder's configuration, with one output. Raises BackendError as ``load`` does."""
    from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, AutoConfig

    try:
        with no_load_report():
            config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise BackendError(
            str(folder),
            problem=f"no readable configuration of a model: {error}",
            next_step="check the folder with a fresh download",
        ) from error
    if type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise BackendError(
            f"{folder}: model_type",
            expected="an architecture with a sequence classification form",
            found=config.model_type,
            next_step="take a reward model, or a causal model of such an architecture",
        )
    names = config.architectures or []
    if any(name.endswith("ForSequenceClassification") for name in names) and config.num_labels != 1:
        raise BackendError(
            f"{folder}: head",
            expected="one output",
            found=f"{config.num_labels} ({', '.join(map(str, config.id2label.values()))})",
            next_step="take a reward model with a scalar head",
        )
    config.num_labels = 1
    return config


def _require_score(model: Any, left: Collection[str], folder: Path) -> None:
    """``left``: weights of the folder that found no place, where a head of another form shows."""
    import torch

    score = getattr(model, "score", None)
    more = sorted(name for name in left if name.startswith("score."))
    if more:
        raise BackendError(
            f"{folder}: head",
            expected=f"{_HEAD} alone",
            found=f"{', '.join(more)} besides",
            next_step="take a decoder with such a head, or hand its scores in as a table",
        )
    if not isinstance(score, torch.nn.Linear) or score.bias is not None:
        raise BackendError(
            f"{folder}: head",
            expected="a linear layer called score, without bias, on the last token's state",
            found=type(score).__name__ if score is not None else "no score layer",
            next_step="take a decoder with such a head, or hand its scores in as a table",
        )
