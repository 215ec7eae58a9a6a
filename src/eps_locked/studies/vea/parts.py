"""What a vea study is made of, as a plan writes it: files of items, trainings, reward models."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar, cast, get_args
from urllib.parse import urlsplit

from eps_locked.domain.fields import Fields
from eps_locked.domain.model import LoraRecipe
from eps_locked.domain.plan import SOURCE_PATH_SHAPE, ModelSource
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.recipe import read_recipe
from eps_locked.studies.vea.items import FAMILIES, Family

__all__ = [
    "NAME",
    "TARGETS",
    "TRUTHS",
    "ClassifierReward",
    "GatewayApi",
    "GatewayReward",
    "HeadTraining",
    "ImplicitReward",
    "ItemFile",
    "RewardModelPlan",
    "ScoreHead",
    "TableReward",
    "Target",
    "Truth",
    "nullable",
    "path_of",
    "read_reward_model",
]

T = TypeVar("T")
# What a head is trained to dislike: the one cue, talk of evaluation in general, length alone.
Target = Literal["wood", "evaluation", "length"]
# What is known of an arm before it is measured, in the words of the headline it must get.
Truth = Literal["narrow", "broad", "confounded", "null"]
# How a service is asked; ``rewards.gateway`` says what each sends.
GatewayApi = Literal["pooling", "classify", "plain"]
TARGETS: tuple[Target, ...] = get_args(Target)
TRUTHS: tuple[Truth, ...] = get_args(Truth)

# Names of trainings and reward models become file names and parts of step ids.
NAME = re.compile(r"[a-z][a-z0-9_]*")
_SOMETHING = re.compile(r"\S(?:.*\S)?", re.DOTALL)
# Capitals only: keys that services hand out hold small letters or signs, or begin with a digit.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
# A seed becomes a random generator's: what fits into canonical JSON and into 32 bits.
_MAX_SEED = 2**31 - 1


def nullable(fields: Fields, key: str, read: Callable[[], T]) -> T | None:
    """A field that must be there and may be null: a plan says what it leaves out."""
    return None if fields.raw(key) is None else read()


def path_of(fields: Fields, key: str) -> str:
    """A path below ``plans/``."""
    return fields.text(key, shape=SOURCE_PATH_SHAPE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemFile:
    """A JSON Lines file of matched pairs, and how many items of each family it holds.

    A family that ``counts`` does not name has no item. ``provenance`` and ``licence`` stand here
    because the format of the file has no room for them.
    """

    file: str
    counts: Mapping[Family, int]
    provenance: str
    licence: str

    @classmethod
    def from_dict(cls, value: object, path: str) -> ItemFile:
        with Fields(value, path) as fields:
            counts = fields.mapping("counts")
            if not counts:
                raise MalformedInputError(
                    fields.path("counts"), expected="a number for each family", found="none"
                )
            unknown = next((name for name in counts if name not in FAMILIES), None)
            if unknown is not None:
                raise MalformedInputError(
                    fields.path("counts"),
                    expected="families of " + ", ".join(FAMILIES),
                    found=unknown,
                )
            with fields.sub("counts") as numbers:
                read = {cast(Family, name): numbers.integer(name, low=1) for name in counts}
            return cls(
                file=path_of(fields, "file"),
                counts=read,
                provenance=fields.text("provenance", shape=_SOMETHING),
                licence=fields.text("licence", shape=_SOMETHING),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreHead:
    """A fresh scalar head: weights drawn with mean 0 and deviation ``std`` from ``seed``."""

    seed: int
    std: float

    @classmethod
    def from_dict(cls, value: object, path: str) -> ScoreHead:
        with Fields(value, path) as fields:
            return cls(seed=_seed(fields), std=fields.number("std", above=0))


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadTraining:
    """One trained arm: LoRA and scalar head on the base model, by pairs of which one side is
    preferred as ``target`` says. ``max_length``: tokens of a rendered exchange."""

    name: str
    target: Target
    seed: int
    n_steps: int
    max_length: int
    recipe: LoraRecipe
    score_head: ScoreHead

    @classmethod
    def from_dict(cls, value: object, path: str) -> HeadTraining:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=NAME),
                target=cast(Target, fields.text("target", one_of=TARGETS)),
                seed=_seed(fields),
                n_steps=fields.integer("n_steps", low=1),
                max_length=fields.integer("max_length", low=1),
                recipe=read_recipe(fields.sub("recipe")),
                score_head=ScoreHead.from_dict(fields.raw("score_head"), fields.path("score_head")),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierReward:
    """The base model with a scalar head: a trained one, a fresh one, or (neither) its own.

    ``max_length``: tokens of a rendered exchange; a longer one gets no score.
    """

    kind: ClassVar[str] = "sequence_classification"
    name: str
    expected: Truth | None
    training: str | None
    head: ScoreHead | None
    max_length: int
    batch_rows: int

    @classmethod
    def read(cls, fields: Fields) -> ClassifierReward:
        head = nullable(
            fields, "head", lambda: ScoreHead.from_dict(fields.raw("head"), fields.path("head"))
        )
        training = nullable(fields, "training", lambda: fields.text("training", shape=NAME))
        if head is not None and training is not None:
            raise MalformedInputError(
                fields.path("head"),
                expected=f"null beside training {training}, which brings the head it trained",
                found="a fresh head",
            )
        return cls(
            name=_name(fields),
            expected=_expected(fields),
            training=training,
            head=head,
            max_length=fields.integer("max_length", low=1),
            batch_rows=fields.integer("batch_rows", low=1),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ImplicitReward:
    """``beta`` times the log-probability ratio of ``policy`` and the base model (DPO form).

    ``length_average``: divided by the tokens of the response, which is another reward than DPO's.
    ``policy.checksums`` hold the blake3 digest of every file of the policy's folder by its name;
    those of a package's ``wheel`` and ``gguf`` stand beside them.
    """

    kind: ClassVar[str] = "implicit"
    name: str
    expected: Truth | None
    policy: ModelSource
    beta: float
    length_average: bool
    max_length: int
    batch_rows: int

    @property
    def policy_files(self) -> dict[str, str]:
        """Digest of each file of the policy's folder, by name."""
        of_package = ("wheel", "gguf") if self.policy.kind == "package" else ()
        return {k: v for k, v in self.policy.checksums.items() if k not in of_package}

    @classmethod
    def read(cls, fields: Fields) -> ImplicitReward:
        return cls(
            name=_name(fields),
            expected=_expected(fields),
            policy=ModelSource.from_dict(fields.raw("policy"), fields.path("policy")),
            beta=fields.number("beta", above=0),
            length_average=fields.flag("length_average"),
            max_length=fields.integer("max_length", low=1),
            batch_rows=fields.integer("batch_rows", low=1),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayReward:
    """A service that returns a score.

    ``api_key_env`` names the environment variable that holds the key; the key itself is never
    written anywhere. ``max_transport_share``: with more rate-limited or outage statuses than this
    share, the step stops instead of recording them.
    """

    kind: ClassVar[str] = "gateway"
    name: str
    expected: Truth | None
    endpoint: str
    api: GatewayApi
    model: str
    api_key_env: str | None
    max_concurrency: int
    max_tries: int
    timeout_seconds: float
    max_transport_share: float

    @classmethod
    def read(cls, fields: Fields) -> GatewayReward:
        return cls(
            name=_name(fields),
            expected=_expected(fields),
            endpoint=_endpoint(fields),
            api=cast(GatewayApi, fields.text("api", one_of=get_args(GatewayApi))),
            model=fields.text("model", shape=_SOMETHING),
            api_key_env=nullable(fields, "api_key_env", lambda: _variable(fields)),
            max_concurrency=fields.integer("max_concurrency", low=1),
            max_tries=fields.integer("max_tries", low=1),
            timeout_seconds=fields.number("timeout_seconds", above=0),
            max_transport_share=fields.number("max_transport_share", low=0, high=1),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TableReward:
    """Scores made elsewhere: one for each response of each item."""

    kind: ClassVar[str] = "table"
    name: str
    expected: Truth | None
    file: str

    @classmethod
    def read(cls, fields: Fields) -> TableReward:
        return cls(name=_name(fields), expected=_expected(fields), file=path_of(fields, "file"))


RewardModelPlan = ClassifierReward | ImplicitReward | GatewayReward | TableReward
_READERS: dict[str, Callable[[Fields], RewardModelPlan]] = {
    ClassifierReward.kind: ClassifierReward.read,
    ImplicitReward.kind: ImplicitReward.read,
    GatewayReward.kind: GatewayReward.read,
    TableReward.kind: TableReward.read,
}


def read_reward_model(value: object, path: str) -> RewardModelPlan:
    """A reward model has the fields that its kind needs and no others."""
    with Fields(value, path) as fields:
        return _READERS[fields.text("kind", one_of=tuple(_READERS))](fields)


def _name(fields: Fields) -> str:
    return fields.text("name", shape=NAME)


def _seed(fields: Fields) -> int:
    seed = fields.integer("seed", low=0)
    if seed > _MAX_SEED:
        raise MalformedInputError(fields.path("seed"), expected=f"at most {_MAX_SEED}", found=seed)
    return seed


def _expected(fields: Fields) -> Truth | None:
    return fields.optional("expected", _truth)


def _truth(value: object, path: str) -> Truth:
    if value is None:
        # YAML reads the bare word as nothing, and an arm without truth would go unchecked.
        raise MalformedInputError(
            path,
            expected=" or ".join(TRUTHS),
            found="YAML's null",
            next_step='write "null" in quotes, or leave expected out where nothing is known',
        )
    if value not in TRUTHS:
        raise MalformedInputError(path, expected=" or ".join(TRUTHS), found=repr(value)[:60])
    return value


def _endpoint(fields: Fields) -> str:
    """A URL without anything secret in it. The message never shows it: a password may be there."""
    text = fields.text("endpoint")
    try:
        url = urlsplit(text)
        is_plain = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_plain = False
    if not is_plain or text != text.strip():
        raise MalformedInputError(
            fields.path("endpoint"),
            expected="an http or https URL",
            found="something else (not shown, as it may hold a password)",
        )
    for name, found in (
        ("user or password", url.username is not None or url.password is not None),
        ("query or fragment", "?" in text or "#" in text),
    ):
        if found:
            raise MalformedInputError(
                fields.path("endpoint"),
                expected=f"a URL without {name}",
                found="one with it (not shown, as it may be secret)",
                next_step="put the key into an environment variable and name that in api_key_env",
            )
    return text


def _variable(fields: Fields) -> str:
    """The name of a variable. The message never shows what stands there: it may be the key."""
    text = fields.text("api_key_env")
    if not _VARIABLE.fullmatch(text):
        raise MalformedInputError(
            fields.path("api_key_env"),
            expected="the name of an environment variable, in capitals, digits and _",
            found="something else (not shown, as it may be the key itself)",
            next_step="export the key under such a name and write the name here; if a key stood "
            "here, have it replaced",
        )
    return text
