"""A plan: what people intend, as they wrote it. Still editable; freezing turns it into a manifest.

This is the part every study shares. The study's own section stays a mapping here and is read by
``studies/<name>/plan.py``. ``schemas/plan.schema.json`` describes the same door to outsiders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError

PLAN_SCHEMA = "eps-locked/plan/1"
STUDIES = ("eps", "drift", "vea", "battery")
# Studies whose models may answer elsewhere, without local files.
STUDIES_ELSEWHERE = ("vea", "battery")
MS_PER_HOUR = 3_600_000

# The shapes that schemas/plan.schema.json asks for. Everything that becomes part of a path, a step
# id or a command line has one.
NAME_SHAPE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
SOURCE_PATH_SHAPE = re.compile(r"(?!/)(?!.*(^|/)\.\.(/|$))[^\\]+")
_WORD = re.compile(r"\S+")
_SOMETHING = re.compile(r".+", re.DOTALL)
_LICENCE = re.compile(r".*\S.*", re.DOTALL)
_CHECKSUM = re.compile(r"(sha256|blake3):[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_USER = re.compile(r"//[^/?#]*@")
_MAX_SEED = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSource:
    """Where the base model comes from: a package on the index, a local folder, or a hub repo.

    ``where`` is the package name, the folder or the repo id; ``revision`` the version or the
    40-digit commit (absent for a folder); ``checksums`` what must be true of the download.
    ``elsewhere`` is a model without local files: ``where`` says where it answers, and nothing of it
    can be pinned or checked.
    """

    kind: Literal["package", "folder", "hub", "scripted", "elsewhere"]
    where: str
    revision: str | None
    checksums: Mapping[str, str]

    @classmethod
    def from_dict(cls, value: object, path: str) -> ModelSource:
        with Fields(value, path) as fields:
            kind = fields.text("kind", one_of=("package", "folder", "hub", "scripted", "elsewhere"))
            source = cls(
                kind=kind,  # type: ignore[arg-type]  # checked by one_of
                where=fields.text("where", shape=_SOMETHING),
                revision=fields.text_or_none("revision"),
                checksums=fields.text_map("checksums", shape=_CHECKSUM),
            )
        if source.kind == "hub" and source.revision and not _COMMIT.fullmatch(source.revision):
            raise MalformedInputError(
                f"{path}.revision",
                expected="a commit of 40 hex digits",
                found=source.revision,
                next_step="a branch or tag may move; write the commit it stands at",
            )
        if source.kind == "package" and not {"wheel", "gguf"} <= set(source.checksums):
            raise MalformedInputError(
                f"{path}.checksums",
                expected="wheel and gguf",
                found=", ".join(sorted(source.checksums)) or "none",
            )
        if source.revision == "" or (source.kind in ("package", "hub") and not source.revision):
            raise MalformedInputError(
                f"{path}.revision",
                expected="a pinned version or commit",
                found="none",
                next_step="pin it: a name alone may hold other bytes tomorrow",
            )
        if source.kind == "elsewhere":
            source._check_elsewhere(path)
        return source

    def _check_elsewhere(self, path: str) -> None:
        for key, found in (("revision", self.revision), ("checksums", dict(self.checksums))):
            if found:
                raise MalformedInputError(
                    f"{path}.{key}",
                    expected="none for a model that lies elsewhere",
                    found=found,
                    next_step="leave it out: what cannot be checked here must not look pinned",
                )
        if _USER.search(self.where):
            raise MalformedInputError(
                f"{path}.where",
                problem="holds a user or a password",
                expected="where the model answers, without them",
                found="an address with a part before @, which is not shown here",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseModel:
    """The one model that every adapter of the study is trained onto."""

    name: str
    family: str
    licence: str
    source: ModelSource

    @classmethod
    def from_dict(cls, value: object, path: str) -> BaseModel:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=_SOMETHING),
                family=fields.text("family", shape=_SOMETHING),
                licence=fields.text("licence", shape=_LICENCE),
                source=ModelSource.from_dict(fields.mapping("source"), fields.path("source")),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmPlan:
    """How vLLM is brought up; the LoRA rank limit follows from the recipes.

    ``max_model_len``: prompt and answer together, None the model's own limit. ``kv_cache_gib``: for
    the cache, None leaves it to ``gpu_memory_utilization``, which must leave the trainer its room.
    """

    max_model_len: int | None
    max_num_seqs: int
    gpu_memory_utilization: float
    kv_cache_gib: float | None
    enforce_eager: bool

    @classmethod
    def from_dict(cls, value: object, path: str) -> VllmPlan:
        with Fields(value, path) as fields:
            cache = None
            if fields.raw("kv_cache_gib") is not None:
                cache = fields.number("kv_cache_gib", above=0)
            return cls(
                max_model_len=fields.integer_or_none("max_model_len"),
                max_num_seqs=fields.integer("max_num_seqs", low=1),
                gpu_memory_utilization=fields.number("gpu_memory_utilization", above=0, high=1),
                kv_cache_gib=cache,
                enforce_eager=fields.flag("enforce_eager"),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class EnginePlan:
    """Which engine serves the model, in which precision, on which device.

    ``vllm`` is there exactly for the engine of that name. ``elsewhere`` goes with a base model that
    lies elsewhere; precision, device and threads then say nothing.
    """

    name: Literal["transformers", "vllm", "scripted", "elsewhere"]
    dtype: str
    device: str
    threads: int
    vllm: VllmPlan | None

    @classmethod
    def from_dict(cls, value: object, path: str) -> EnginePlan:
        with Fields(value, path) as fields:
            name = fields.text("name", one_of=("transformers", "vllm", "scripted", "elsewhere"))
            plan = cls(
                name=name,  # type: ignore[arg-type]  # checked by one_of
                dtype=fields.text("dtype", one_of=("float32", "bfloat16", "float16")),
                device=fields.text("device", shape=_SOMETHING),
                threads=fields.integer("threads", low=1),
                vllm=fields.optional("vllm", VllmPlan.from_dict),
            )
        if (plan.name == "vllm") != (plan.vllm is not None):
            raise MalformedInputError(
                f"{path}.vllm",
                expected="a part exactly for the engine vllm",
                found=f"engine {plan.name}, {'a' if plan.vllm else 'no'} part vllm",
            )
        return plan


@dataclass(frozen=True, kw_only=True, slots=True)
class AuthorizationRules:
    """Who may authorize, and what the author may authorize alone."""

    allowed_signers: str
    auto_approve_gpu_hours: float
    self_authorization: bool

    @classmethod
    def from_dict(cls, value: object, path: str) -> AuthorizationRules:
        with Fields(value, path) as fields:
            return cls(
                allowed_signers=fields.text("allowed_signers", shape=SOURCE_PATH_SHAPE),
                auto_approve_gpu_hours=fields.number("auto_approve_gpu_hours", low=0),
                self_authorization=fields.flag("self_authorization"),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseBudget:
    """What a phase may cost, and what one step of each kind is expected to cost at most."""

    gpu_hours: float
    step_seconds: Mapping[str, float]

    @classmethod
    def from_dict(cls, value: object, path: str) -> PhaseBudget:
        with Fields(value, path) as fields:
            costs = fields.sub("step_seconds")
            with costs:
                kinds = tuple(fields.mapping("step_seconds"))
                seconds = {kind: costs.number(kind, above=0) for kind in kinds}
            if not seconds:
                raise MalformedInputError(
                    fields.path("step_seconds"), expected="a number for each kind", found="none"
                )
            return cls(gpu_hours=fields.number("gpu_hours", above=0), step_seconds=seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The shared part of a plan. ``study_section`` is what stands under the study's own name."""

    name: str
    title: str
    study: str
    author: str
    base_model: BaseModel
    engine: EnginePlan
    seeds: tuple[int, ...]
    minimum_seeds: int
    authorization: AuthorizationRules
    phases: Mapping[str, PhaseBudget]
    analyses: tuple[str, ...]
    publication: bool
    study_section: Mapping[str, Any]

    @classmethod
    def from_dict(cls, value: object, path: str = "plan") -> Plan:
        """Raises MalformedInputError at the first field that is not as documented."""
        with Fields(value, path) as fields:
            fields.text("schema", one_of=(PLAN_SCHEMA,))
            study = fields.text("study", one_of=STUDIES)
            phases = {
                name: PhaseBudget.from_dict(item, f"{path}.phases.{name}")
                for name, item in fields.mapping("phases").items()
            }
            plan = cls(
                name=fields.text("name", shape=NAME_SHAPE),
                title=fields.text("title", shape=_SOMETHING),
                study=study,
                author=fields.text("author", shape=_WORD),
                base_model=BaseModel.from_dict(
                    fields.mapping("base_model"), fields.path("base_model")
                ),
                engine=EnginePlan.from_dict(fields.mapping("engine"), fields.path("engine")),
                seeds=fields.integers("seeds", low=0, high=_MAX_SEED),
                minimum_seeds=fields.integer("minimum_seeds", low=1),
                authorization=AuthorizationRules.from_dict(
                    fields.mapping("authorization"), fields.path("authorization")
                ),
                phases=phases,
                analyses=fields.texts("analyses"),
                publication=fields.flag("publication"),
                study_section=fields.mapping(study),
            )
        plan._check(path)
        return plan

    def _check(self, path: str) -> None:
        if len(set(self.seeds)) != len(self.seeds):
            raise MalformedInputError(
                f"{path}.seeds", expected="distinct seeds", found=list(self.seeds)
            )
        if len(self.seeds) < self.minimum_seeds:
            raise MalformedInputError(
                f"{path}.seeds",
                expected=f"at least {self.minimum_seeds} (minimum_seeds)",
                found=len(self.seeds),
                next_step="add seeds; a study on one seed cannot tell its finding from luck",
            )
        if self.publication and self.engine.name == "scripted":
            raise MalformedInputError(
                f"{path}.publication",
                expected="false with the scripted engine",
                found="true",
                next_step="the scripted engine is a stand-in; its numbers are never evidence",
            )
        self._check_elsewhere(path)

    def _check_elsewhere(self, path: str) -> None:
        """A model without local files has no engine of ours, and few studies can do without one."""
        lies_elsewhere = self.base_model.source.kind == "elsewhere"
        if lies_elsewhere != (self.engine.name == "elsewhere"):
            raise MalformedInputError(
                f"{path}.engine.name",
                expected="elsewhere exactly for a base model of kind elsewhere",
                found=f"engine {self.engine.name}, model {self.base_model.source.kind}",
            )
        if lies_elsewhere and self.study not in STUDIES_ELSEWHERE:
            raise MalformedInputError(
                f"{path}.base_model.source.kind",
                expected=f"a model whose files are at hand, for a study of {self.study}",
                found="elsewhere",
                next_step=f"only {' and '.join(STUDIES_ELSEWHERE)} can measure models that they "
                "cannot load",
            )
