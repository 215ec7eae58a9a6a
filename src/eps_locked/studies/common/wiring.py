"""Picks the concrete engine, trainer and tokenizer for a plan. The one place that knows.

Nothing heavy is imported until a function here is called.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from eps_locked.domain.judging import Judge, JudgePlan
from eps_locked.domain.ledger import FileRecord
from eps_locked.domain.model import (
    ChatTokenizer,
    LogprobEngine,
    Message,
    SlotRequest,
    TokenIds,
)
from eps_locked.domain.plan import BaseModel, Plan, VllmPlan
from eps_locked.domain.plan import ModelSource as PlannedSource
from eps_locked.errors import BackendError
from eps_locked.models.source import (
    FolderSource,
    HubSource,
    ModelSource,
    PackageSource,
    cache_root,
    obtain,
)
from eps_locked.studies.common.backends import Backends

# Asked of base and adapter alike when an adapter is attached; any change in the answer shows that
# it acts. The texts do not matter beyond being ordinary.
INSTANCE = "in-process"
_PROOF_TEXTS = ("The capital of France is", "Water boils when", "My favourite colour is")
# The kind of a base model that answers somewhere and has no files here.
ELSEWHERE = "elsewhere"


class ModelFolders(Protocol):
    """Finds the files of models on this disk; fetches what is not there yet."""

    def __call__(self, source: PlannedSource | None = None) -> Path | None:
        """The folder of the base model, or that of another source of the plan; None for a model
        without files."""
        ...


def model_source(model: BaseModel, root: Path) -> ModelSource:
    """The plan's source in the words of ``models.source``; folders are relative to ``root``."""
    source = model.source
    if source.kind == "package":
        assert source.revision is not None
        return PackageSource(
            package=source.where,
            version=source.revision,
            wheel_sha256=source.checksums["wheel"].removeprefix("sha256:"),
            gguf_sha256=source.checksums["gguf"].removeprefix("sha256:"),
        )
    if source.kind == "hub":
        assert source.revision is not None
        return HubSource(repo_id=source.where, revision=source.revision)
    return FolderSource(path=root / source.where)


def obtain_model(plan: Plan, root: Path, progress: Callable[[str], None]) -> Path | None:
    """The base model's folder, fetched if need be; None for the scripted stand-in, and for a model
    that lies elsewhere."""
    if plan.base_model.source.kind in ("scripted", ELSEWHERE):
        return None
    return obtain(model_source(plan.base_model, root), cache_root(os.environ), progress)


def model_records(folder: Path | None) -> dict[str, FileRecord]:
    """Digest and size of every file of the base model."""
    if folder is None:
        return {}
    from eps_locked.models.folder import digest_model_folder

    return {
        name: FileRecord(digest=record["digest"], size=record["size"])
        for name, record in digest_model_folder(folder).items()
    }


def load_tokenizer(plan: Plan, folder: Path | None) -> ChatTokenizer:
    """The model's own tokenizer; imports no torch.

    A model that lies elsewhere gets one that refuses whatever it is asked.
    """
    if plan.base_model.source.kind == ELSEWHERE:
        return _TokenizerElsewhere(plan.base_model.name)
    if folder is None:
        from eps_locked.models.scripted import ScriptedTokenizer

        return ScriptedTokenizer()
    from eps_locked.models.tokenizer import HfChatTokenizer

    return HfChatTokenizer(folder)


def load_backends(
    plan: Plan, folder: Path | None, ranks: Sequence[int], instance: str = INSTANCE
) -> Backends:
    """Bring the model up: one base model, shared by engine and trainer.

    ``ranks`` are those of the plan's recipes; ``instance`` names what serves, for the ledger.
    Raises BackendError for a model that lies elsewhere, and for what is not installed.
    """
    if plan.base_model.source.kind == ELSEWHERE:
        raise _lies_elsewhere(plan.base_model.name, "its weights")
    if folder is None:
        from eps_locked.engines.scripted import ScriptedEngine
        from eps_locked.models.scripted import ScriptedTokenizer
        from eps_locked.training.scripted import ScriptedTrainer

        scripted = ScriptedEngine()
        return Backends(
            engine=scripted,
            readout=scripted,
            trainer=ScriptedTrainer(),
            tokenizer=ScriptedTokenizer(),
        )
    # Waiting threads sleep instead of spinning. Where anything else runs too, spinning makes
    # two threads several times slower than one; it must be said before the library is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from eps_locked.engines.hf import HfEngine
        from eps_locked.models.host import AdapterHost
        from eps_locked.training.lora import LoraTrainer
    except ImportError as error:
        raise BackendError(
            "engine transformers",
            problem=f"is not installed ({error.name})",
            next_step="install the hf extra: pip install 'eps-locked[hf]'",
        ) from error
    if plan.engine.vllm is not None:
        _require_vllm(plan)
    tokenizer = load_tokenizer(plan, folder)
    host = AdapterHost.load(
        folder,
        dtype=plan.engine.dtype,
        device=plan.engine.device,
        threads=plan.engine.threads,
    )
    probes = [
        SlotRequest(key=f"proof/{number}", token_ids=tokenizer.encode(text))
        for number, text in enumerate(_PROOF_TEXTS)
    ]
    readout = HfEngine(host, tokenizer, probe_prompts=probes, instance_id=instance)
    engine: LogprobEngine = readout
    if plan.engine.vllm is not None:
        engine = _load_vllm(
            plan, plan.engine.vllm, folder, tokenizer, probes, ranks=ranks, instance=instance
        )
    trainer = LoraTrainer(host, plan.base_model.name)
    return Backends(engine=engine, readout=readout, trainer=trainer, tokenizer=tokenizer)


def _lies_elsewhere(model: str, needed: str) -> BackendError:
    return BackendError(
        f"base model {model}",
        problem="lies elsewhere (source kind elsewhere): it is only asked, never loaded",
        expected=f"{needed} on this disk",
        found="none",
        next_step="name a base model with files (package, folder or hub), or take out of the plan "
        "what trains, renders or serves it",
    )


class _TokenizerElsewhere:
    """The tokenizer of a model that lies elsewhere: nobody here has it, so every use is refused."""

    def __init__(self, model: str) -> None:
        self._model = model

    @property
    def end_of_turn_id(self) -> int:
        raise _lies_elsewhere(self._model, "its tokenizer")

    @property
    def template_digest(self) -> str:
        raise _lies_elsewhere(self._model, "its chat template")

    def render(self, messages: Sequence[Message]) -> TokenIds:
        raise _lies_elsewhere(self._model, "its chat template")

    def encode(self, text: str) -> TokenIds:
        raise _lies_elsewhere(self._model, "its tokenizer")

    def decode(self, token_ids: Sequence[int]) -> str:
        raise _lies_elsewhere(self._model, "its tokenizer")


def _require_vllm(plan: Plan) -> None:
    """Said before the trainer loads its copy of the model, which takes minutes for a large one."""
    if plan.engine.dtype == "float16":
        raise BackendError("engine vllm", expected="float32 or bfloat16", found="float16")
    if importlib.util.find_spec("vllm") is None:
        raise BackendError(
            "engine vllm",
            problem="is not installed",
            next_step="docs/engines.md says which of its two builds to take, and how",
        )


def _load_vllm(
    plan: Plan,
    rules: VllmPlan,
    folder: Path,
    tokenizer: ChatTokenizer,
    probes: Sequence[SlotRequest],
    *,
    ranks: Sequence[int],
    instance: str,
) -> LogprobEngine:
    """vLLM beside the trainer's own copy of the model: it writes and reads, it does not train."""
    from eps_locked.engines.vllm_adapters import rank_limit
    from eps_locked.engines.vllm_engine import load_vllm
    from eps_locked.engines.vllm_port import VllmOptions

    return load_vllm(
        folder,
        tokenizer,
        probe_prompts=probes,
        options=VllmOptions(
            dtype="float32" if plan.engine.dtype == "float32" else "bfloat16",
            device=plan.engine.device,
            max_lora_rank=rank_limit(ranks),
            max_model_len=rules.max_model_len,
            max_num_seqs=rules.max_num_seqs,
            gpu_memory_utilization=rules.gpu_memory_utilization,
            kv_cache_gib=rules.kv_cache_gib,
            enforce_eager=rules.enforce_eager,
            threads=plan.engine.threads,
        ),
        instance_id=instance,
    )


def load_judge(plan: JudgePlan) -> Judge:
    """A judge of the plan; its key, if it needs one, from the environment."""
    from eps_locked.judges.make import make_judge

    return make_judge(plan, os.environ)
