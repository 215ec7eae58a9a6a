"""Each kind gets its own door, with what it rests on, or a sentence that says what is missing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.rewards.make import Ground, make_reward_model
from eps_locked.rewards.table import TableReward


def no_host() -> Any:
    raise AssertionError("a model was loaded")


GROUND = Ground(
    base_name="base",
    base_folder=None,
    dtype="float32",
    device="cpu",
    threads=1,
    host=no_host,
    table=b"item,response,score\na,base,1\n",
)


@dataclass(frozen=True, kw_only=True)
class Table:
    kind: ClassVar[str] = "table"
    name: str = "elsewhere"
    file: str = "scores.csv"


@dataclass(frozen=True, kw_only=True)
class Served:
    kind: ClassVar[str] = "gateway"
    name: str = "served"
    endpoint: str = "https://rewards.example"
    api: str = "plain"
    model: str = "rm"
    api_key_env: str | None = "RM_KEY"
    max_concurrency: int = 1
    max_tries: int = 1
    timeout_seconds: float = 1
    max_transport_share: float = 0


@dataclass(frozen=True, kw_only=True)
class Head:
    seed: int = 5
    std: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Classifier:
    kind: ClassVar[str] = "sequence_classification"
    name: str = "narrow"
    training: str | None = None
    head: Head | None = None
    max_length: int = 64
    batch_rows: int = 2


@dataclass(frozen=True, kw_only=True)
class Source:
    where: str = "models/policy"


@dataclass(frozen=True, kw_only=True)
class Implicit:
    kind: ClassVar[str] = "implicit"
    name: str = "dpo"
    policy: Source = Source()
    beta: float = 0.1
    length_average: bool = False
    max_length: int = 64
    batch_rows: int = 2


@dataclass(frozen=True, kw_only=True)
class Oracle:
    kind: ClassVar[str] = "oracle"
    name: str = "delphi"


def test_a_table_is_read_from_the_frozen_bytes() -> None:
    model = make_reward_model(Table(), GROUND, {})
    assert isinstance(model, TableReward)
    assert model.identity.model == "elsewhere"


def test_a_service_gets_its_key_from_the_environment_and_keeps_it() -> None:
    pytest.importorskip("httpx2", reason="the judges extra is not installed")
    model = make_reward_model(Served(), GROUND, {"RM_KEY": "sk-1", "OTHER": "sk-2"})
    assert "sk-1" not in str(model.identity)
    with pytest.raises(BackendError, match="RM_KEY is not set") as caught:
        make_reward_model(Served(), GROUND, {"OTHER": "sk-2"})
    assert "sk-2" not in str(caught.value)
    assert make_reward_model(Served(api_key_env=None), GROUND, {}).identity.kind == "gateway"


@pytest.mark.parametrize(
    ("plan", "head"),
    [(Classifier(), "its own"), (Classifier(head=Head()), "fresh, seed 5, std 0.5")],
)
def test_the_scripted_base_model_scores_without_torch(plan: Classifier, head: str) -> None:
    assert make_reward_model(plan, GROUND, {}).identity.settings["head"] == head


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Table(), "reward model elsewhere: expected its table, found none"),
        (Classifier(training="wood_only"), "expected the adapter of wood_only, found none"),
        (Implicit(), "expected the folders of policy and reference, found none"),
    ],
)
def test_what_is_not_there_is_named(plan: Any, words: str) -> None:
    with pytest.raises(BackendError, match=words):
        make_reward_model(plan, replace(GROUND, table=None), {})


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(MalformedInputError, match="delphi: expected sequence_classification or"):
        make_reward_model(Oracle(), GROUND, {})


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    monkeypatch.delitem(sys.modules, "eps_locked.rewards.gateway", raising=False)
    with pytest.raises(BackendError, match="needs httpx2, which is not installed") as caught:
        make_reward_model(Served(api_key_env=None), GROUND, {})
    assert "pip install 'eps-locked[judges]'" in str(caught.value)


def test_making_a_table_or_a_stand_in_imports_nothing_heavy() -> None:
    code = (
        "import sys; import eps_locked.rewards.make, eps_locked.rewards.table, "
        "eps_locked.rewards.scripted; "
        "assert not {'torch', 'transformers', 'httpx2', 'openai'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
