"""Which models a ``vea`` step gets, and that no two are in memory together."""

from __future__ import annotations

import gc
import importlib.metadata
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from eps_locked.domain.model import AdapterFiles, EngineIdentity
from eps_locked.domain.plan import Plan
from eps_locked.domain.reward import RewardModel, RewardTrainer
from eps_locked.errors import BackendError
from eps_locked.rewards.make import Ground, make_reward_model
from eps_locked.studies.common.wiring import INSTANCE, ModelFolders
from eps_locked.studies.vea.plan import ClassifierReward, ImplicitReward, RewardModelPlan
from eps_locked.studies.vea.policy import FrozenPolicy, require_policy

if TYPE_CHECKING:
    from eps_locked.models.reward_host import RewardHost

__all__ = ["Handed", "Models", "engine_identity"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Handed:
    """What a step hands its reward model: each is there for the kind that rests on it."""

    adapter: AdapterFiles | None
    table: bytes | None
    policy: bytes | None


@dataclass(kw_only=True, slots=True)
class Models:
    """The base model with a scalar head, brought up once and dropped before any other comes."""

    plan: Plan
    folder: ModelFolders
    environ: Mapping[str, str]
    _host: RewardHost | None = field(default=None)

    def trainer(self) -> RewardTrainer:
        """What fits a head and an adapter onto the plan's base model."""
        base = self.base_folder()
        if base is None:
            from eps_locked.training.scripted_reward import ScriptedRewardTrainer

            return ScriptedRewardTrainer()
        from eps_locked.models.tokenizer import HfChatTokenizer
        from eps_locked.training.reward import BradleyTerryTrainer

        return BradleyTerryTrainer(self.host(), HfChatTokenizer(base), self.plan.base_model.name)

    def reward_model(self, model: RewardModelPlan, handed: Handed) -> RewardModel:
        """Raises RefusedError for a policy that is not the frozen one, and what making one does."""
        needs_base = isinstance(model, ClassifierReward | ImplicitReward)
        base = self.base_folder() if needs_base else None
        if not isinstance(model, ClassifierReward):
            self.release()
        policy = None
        if isinstance(model, ImplicitReward) and handed.policy is not None:
            policy = self._policy(model, handed.policy)
        engine = self.plan.engine
        ground = Ground(
            base_name=self.plan.base_model.name,
            base_folder=base,
            dtype=engine.dtype,
            device=engine.device,
            threads=engine.threads,
            host=self.host,
            adapter=handed.adapter,
            table=handed.table,
            policy_folder=policy,
        )
        return make_reward_model(model, ground, self.environ)

    def base_folder(self) -> Path | None:
        """None for the scripted base model. Raises BackendError for one that lies elsewhere."""
        if self.plan.base_model.source.kind == "elsewhere":
            raise BackendError(
                f"base model {self.plan.base_model.name}",
                problem="lies elsewhere: it is never loaded here",
                expected="a step that needs no model of ours",
                found="one that does",
                next_step="name a base model with files",
            )
        folder = self.folder()
        if folder is not None:
            # As studies.common.wiring says: before torch is loaded, or threads spin.
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        return folder

    def host(self) -> RewardHost:
        """The base model in memory."""
        if self._host is None:
            base = self.base_folder()
            assert base is not None
            from eps_locked.models.reward_host import RewardHost

            engine = self.plan.engine
            self._host = RewardHost.load(
                base, dtype=engine.dtype, device=engine.device, threads=engine.threads
            )
        return self._host

    def release(self) -> None:
        """Give the memory back; the next need loads again."""
        self._host = None
        gc.collect()

    def _policy(self, model: ImplicitReward, data: bytes) -> Path:
        frozen = FrozenPolicy.read(data, f"frozen policy of {model.name}")
        folder, reference = self.folder(model.policy), self.base_folder()
        if folder is None or reference is None:
            raise BackendError(
                f"reward model {model.name}",
                expected="policy and base model as folders of files",
                found="a model without files",
                next_step="a log-probability ratio needs two real models",
            )
        require_policy(frozen, folder, reference)
        return folder


def engine_identity(plan: Plan) -> EngineIdentity:
    """What runs models in this process, told without loading one.

    Raises BackendError where the plan's engine is not installed.
    """
    engine = plan.engine
    if engine.name != "transformers":
        is_scripted = engine.name == "scripted"
        return EngineIdentity(
            name=engine.name,
            version="1",
            device="cpu" if is_scripted else "none",
            dtype="float64" if is_scripted else "none",
            quantisation="none",
            instance_id=INSTANCE,
            flags={},
            publishable=not is_scripted,
        )
    try:
        versions = [
            f"{name} {importlib.metadata.version(name)}"
            for name in ("peft", "torch", "transformers")
        ]
    except importlib.metadata.PackageNotFoundError as error:
        raise BackendError(
            "engine transformers",
            problem=f"is not installed ({error.name})",
            next_step="install the hf extra: pip install 'eps-locked[hf]'",
        ) from error
    return EngineIdentity(
        name="transformers",
        version=", ".join(versions),
        device=engine.device,
        dtype=engine.dtype,
        quantisation="none",
        instance_id=INSTANCE,
        flags={"threads": str(engine.threads)},
        publishable=True,
    )
