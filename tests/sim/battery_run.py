"""Running a battery in the simulator: chat endpoints that say what a test wants, without a line.

``BatterySimulator`` is the study simulator with the battery's executor; ``tell`` decides what every
model answers. With ``tell`` None the scripted model answers on our own server, over HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from eps_locked.data.sampling import sample
from eps_locked.data.spec import SourceSpec
from eps_locked.domain.chat import ChatReply, ChatRequest, EndpointIdentity
from eps_locked.domain.execution import StepExecutor
from eps_locked.domain.model import AdapterFiles
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.battery.execute import BatteryExecutor
from eps_locked.studies.battery.parts import EndpointPlan, ModelPlan
from sim.battery import battery_plan, gateway_plan, harmful_axis
from sim.simulator import StudySimulator

Tell = Callable[[ChatRequest], ChatReply]


def reply(request: ChatRequest, content: str = "Here it is.", **changes: Any) -> ChatReply:
    """A whole reply, or one with fields changed."""
    fields: dict[str, Any] = {
        "key": request.key,
        "status": "answered",
        "content": content,
        "reasoning": "",
        "message": {"role": "assistant", "content": content},
        "finish_reason": "stop",
        "model": "a model",
        "n_prompt_tokens": 9,
        "n_completion_tokens": 5,
        "first_token_seconds": 0.25,
        "seconds": 0.5,
        "tries": 1,
        "note": "",
    }
    return ChatReply(**{**fields, **changes})


def lost(request: ChatRequest, status: str, note: str = "HTTP 503") -> ChatReply:
    """A reply that did not come."""
    return reply(
        request,
        "",
        status=status,
        message=None,
        finish_reason=None,
        model="",
        n_prompt_tokens=None,
        n_completion_tokens=None,
        first_token_seconds=None,
        note=note,
    )


@dataclass(kw_only=True)
class FakeEndpoint:
    """Serves ``domain.chat.ChatEndpoint``; ``asked`` are all requests so far."""

    tell: Tell
    kind: str = "serve"
    said: dict[str, str] = field(default_factory=dict)
    asked: list[ChatRequest] = field(default_factory=list)

    def identity(self, model: str) -> EndpointIdentity:
        return EndpointIdentity(
            kind=self.kind, model=model, server="unknown", said=self.said, publishable=False
        )

    def ask(self, requests: Sequence[ChatRequest]) -> tuple[ChatReply, ...]:
        self.asked += requests
        return tuple(self.tell(request) for request in requests)


@dataclass(kw_only=True)
class BatterySimulator(StudySimulator):
    """``asked``: every request to a fake endpoint so far."""

    tell: Tell | None = None
    environ: dict[str, str] = field(default_factory=dict)
    asked: list[ChatRequest] = field(default_factory=list)

    def executor(self) -> StepExecutor:
        return BatteryExecutor(
            load=self.backends,
            load_judge=self.load_judge,
            lies_elsewhere=self.plan["base_model"]["source"]["kind"] == "elsewhere",
            connect=None if self.tell is None else self._connect,
            environ=self.environ,
        )

    @contextmanager
    def _connect(
        self, plan: EndpointPlan, model: ModelPlan, adapter: AdapterFiles | None
    ) -> Iterator[FakeEndpoint]:
        assert self.tell is not None
        worn = "none" if adapter is None else adapter.digest
        said = {"eps_locked.adapter_digest": worn} if plan.kind == "serve" else {}
        endpoint = FakeEndpoint(tell=self.tell, kind=plan.kind, said=said)
        yield endpoint
        self.asked += endpoint.asked


def narrow_plan(*axes: str, served: bool = True, harmful: bool = False) -> dict[str, Any]:
    """One model, thinking off, these axes and what they need; nothing is trained.

    ``served``: it answers on our own server, else elsewhere, behind a service.
    """
    plan = battery_plan() if served else gateway_plan()
    section = plan["battery"]
    section["models"] = section["models"][:1]
    section["trainings"] = []
    plan["phases"].pop("P1", None)
    section["thinking_modes"] = ["off"]
    section["axes"] = [one for one in section["axes"] if one["axis"] in axes]
    if harmful:
        section["axes"].append(harmful_axis())
    named = [one["axis"] for one in section["axes"]]
    section["analysis"]["margins"] = {axis: 0.2 for axis in named if axis != "speed"}
    refusals = bool({"over_refusal", "harmful"} & set(named))
    if not refusals:
        section.update(refusal=None, calibrations=[])
    if "sycophancy" not in named:
        section["agreement"] = None
    if not refusals and section["agreement"] is None:
        section["judges"] = []
    return plan


def harmful_files(topic: str = "topics") -> dict[str, Any]:
    """A source spec, and eight harmless requests as if drawn by it, for the harmful axis."""
    spec = {
        "schema": "eps-locked/source/1",
        "name": "requests",
        "title": "Made up",
        "kind": "harm_requests",
        "form": "table",
        "location": "git",
        "dataset": "example.org/some/body",
        "revision": "0" * 40,
        "files": [{"path": "requests.csv"}],
        "licence": "CC0-1.0",
        "redistribute": False,
        "keep_text": False,
        "seed": 1,
        "filters": {
            "text": {
                "characters": [1, 400],
                "min_latin": 0.5,
                "min_english_words": 0,
                "max_newlines": 1,
                "max_blank_lines": 1,
                "noise_phrases": [],
                "forbid": [],
                "avoid": [],
                "near_copy": 0.95,
            },
            "columns": {"text": "ask", "topic": None, "id": None},
        },
        "slots": [{"slice": "all", "n": None, "topics": None}],
    }
    nouns = ("anvil", "barrel", "candle", "drawer", "engine", "feather", "goblet", "hammer")
    rows = "".join(f"Say who hid the {noun} of {topic}\n" for noun in nouns).encode()
    text = json.dumps(spec)

    def obtain(_: SourceSpec) -> dict[str, bytes]:
        return {"requests.csv": b"ask\n" + rows}

    drawn = sample(text.encode(), "requests", obtain, ScriptedTokenizer(), forbid=())
    return {
        "sources/requests.yaml": text,
        "sources/sampled/requests.json": drawn.decode("utf-8"),
    }
