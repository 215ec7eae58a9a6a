"""The vLLM engine's rules, on a port that answers from a table: no vLLM is needed here."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tiny_engine

from eps_locked.domain.model import (
    AdapterFiles,
    Decoding,
    Prompt,
    SlotProbe,
    SlotRequest,
    TokenIds,
)
from eps_locked.engines.vllm_adapters import ServedAdapter
from eps_locked.engines.vllm_engine import VllmEngine
from eps_locked.engines.vllm_port import Ask, Told, VllmOptions, VllmPort
from eps_locked.errors import BackendError

END, OTHER_END = tiny_engine.END, tiny_engine.OTHER_END
PROBE = SlotProbe(marker_ids=(11, 12), end_of_turn_id=END)
GREEDY = Decoding(max_new_tokens=6)
OPTIONS = VllmOptions(dtype="float32", device="cpu", max_lora_rank=8)


class TablePort:
    """Answers every prompt with what ``answers`` holds under its last token.

    A log-prob is minus (the prompt's length, then the token id), so that each reading says where
    and what it was read. An adapter in ``idle`` changes no probability; one in ``broken`` does
    not load.
    """

    max_model_len = 40
    device = "table"
    version = "table 1"

    def __init__(self) -> None:
        self.flags = {"a": "b"}
        self.answers: dict[int, TokenIds] = {}
        self.asked: list[list[Ask]] = []
        self.served: list[ServedAdapter | None] = []
        self.loaded: list[ServedAdapter] = []
        self.removed: list[ServedAdapter] = []
        self.idle: set[str] = set()
        self.broken: set[str] = set()
        self.n_lost = 0
        self.closed = False

    def complete(self, asks: Sequence[Ask], adapter: ServedAdapter | None) -> list[Told]:
        self.asked.append(list(asks))
        self.served.append(adapter)
        return [self._tell(ask) for ask in asks]

    def _tell(self, ask: Ask) -> Told:
        answer = self.answers.get(ask.token_ids[-1], ())
        stopped = len(answer) < ask.max_new_tokens
        return Told(
            token_ids=answer[: ask.max_new_tokens],
            stopped=stopped,
            log_probs={i: -len(ask.token_ids) - i / 1000 for i in ask.read_ids},
        )

    def distributions(
        self, prompts: Sequence[TokenIds], adapter: ServedAdapter | None
    ) -> list[npt.NDArray[np.float64]]:
        moved = 0.0 if adapter is None or adapter.digest in self.idle else 0.5
        return [np.array([-1.0, -2.0 - moved]) for _ in prompts]

    def add_adapter(self, adapter: ServedAdapter) -> int:
        if adapter.digest in self.broken:
            raise BackendError(f"adapter {adapter.digest}", problem="does not load")
        assert adapter.folder.is_dir()
        self.loaded.append(adapter)
        return 12 - self.n_lost

    def remove_adapter(self, adapter: ServedAdapter) -> None:
        self.removed.append(adapter)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def port() -> TablePort:
    return TablePort()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tiny")
    tiny_engine.make_model().save_pretrained(found)
    return found


@pytest.fixture
def engine(port: TablePort, folder: Path) -> Iterator[VllmEngine]:
    made = VllmEngine(
        port,
        folder,
        tiny_engine.TinyTokenizer(),
        options=OPTIONS,
        probe_prompts=[SlotRequest(key="probe", token_ids=(1, 30))],
        instance_id="test",
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def adapter() -> AdapterFiles:
    return tiny_engine.make_adapter(tiny_engine.make_host())


def named(adapter: AdapterFiles, name: str) -> AdapterFiles:
    return dataclasses.replace(adapter, digest=f"blake3:{name}")


def prompt(last: int, **fields: object) -> Prompt:
    return Prompt(key=f"row {last}", token_ids=(1, 2, last), **fields)  # type: ignore[arg-type]


def test_the_slot_lies_after_the_answer_or_where_the_marker_first_appears(
    port: TablePort, engine: VllmEngine
) -> None:
    port.answers = {
        50: (60, 61),  # ends by itself
        51: (60, 11, 12, 61),  # the marker, whole
        52: (11, 60, 12),  # its tokens, apart
        53: (60, 11, 11, 12, 11, 12),  # twice, and at the length limit
        54: (),  # says nothing
    }
    out = engine.generate([prompt(last) for last in port.answers], GREEDY, PROBE)
    assert [one.slot_index for one in out] == [2, 1, 3, 2, 0]
    assert [one.marker_emitted for one in out] == [False, True, False, True, False]
    assert [one.stop_reason for one in out] == ["stop", "stop", "stop", "length", "stop"]
    assert [one.token_ids for one in out] == list(port.answers.values())
    for one in out:
        assert one.slot is not None
        n_before = 3 + (one.slot_index or 0)
        assert one.slot.marker_logits == (-n_before - 0.011, -(n_before + 1) - 0.012)
        assert one.slot.end_of_turn_logit == -n_before - END / 1000
        assert one.slot.log_z == (0.0, 0.0)
        assert one.slot.log_prob == sum(one.slot.marker_logits)


def test_reads_force_the_marker_and_ask_for_equally_many_tokens(
    port: TablePort, engine: VllmEngine
) -> None:
    requests = [SlotRequest(key=str(i), token_ids=(1, i)) for i in (50, 51)]
    engine.read_slots(requests, PROBE)
    (asks,) = port.asked
    assert [ask.token_ids for ask in asks] == [(1, 50), (1, 50, 11), (1, 51), (1, 51, 11)]
    assert {len(ask.read_ids) for ask in asks} == {2}


def test_every_end_token_of_model_and_probe_stops(port: TablePort, engine: VllmEngine) -> None:
    engine.generate([prompt(50)], GREEDY, dataclasses.replace(PROBE, end_of_turn_id=7))
    assert port.asked[0][0].stop_ids == (END, OTHER_END, 7)


def test_rows_are_decoded_as_the_caller_said(port: TablePort, engine: VllmEngine) -> None:
    decoding = Decoding(max_new_tokens=5, temperature=0.7, top_p=0.9)
    engine.generate([prompt(50, seed=8), prompt(51, seed=9)], decoding)
    assert [(a.seed, a.temperature, a.top_p, a.max_new_tokens) for a in port.asked[0]] == [
        (8, 0.7, 0.9, 5),
        (9, 0.7, 0.9, 5),
    ]
    for bad in (
        Decoding(max_new_tokens=0),
        Decoding(max_new_tokens=1, temperature=0.001),
        Decoding(max_new_tokens=1, temperature=-1.0),
        Decoding(max_new_tokens=1, top_p=0.0),
    ):
        with pytest.raises(BackendError, match="temperature 0 or"):
            engine.generate([prompt(50)], bad)


def test_prompts_that_do_not_fit_are_named(port: TablePort, engine: VllmEngine) -> None:
    fits = Prompt(key="fits", token_ids=(9,) * 32)  # 40 less 6 to write and 2 of the marker
    long = Prompt(key="the long one", token_ids=(9,) * 33)
    engine.generate([fits], GREEDY, PROBE)
    engine.generate([long], GREEDY)
    with pytest.raises(BackendError, match="the long one"):
        engine.generate([fits, long], GREEDY, PROBE)
    with pytest.raises(BackendError, match="empty one"):
        engine.read_slots([SlotRequest(key="empty one", token_ids=())], PROBE)


def test_what_is_attached_is_served_and_proved(
    port: TablePort, engine: VllmEngine, adapter: AdapterFiles
) -> None:
    proof = engine.attach(adapter)
    assert proof is not None
    assert (proof.n_tensors_loaded, proof.n_tensors_in_file) == (12, 12)
    assert proof.max_abs_log_prob_change == 0.5
    engine.generate([prompt(50)], GREEDY)
    engine.attach(None)
    engine.generate([prompt(50)], GREEDY)
    assert [served and served.digest for served in port.served] == [adapter.digest, None]


def test_a_failed_proof_leaves_the_earlier_adapter_and_nothing_of_the_new(
    port: TablePort, engine: VllmEngine, adapter: AdapterFiles
) -> None:
    engine.attach(named(adapter, "aa"))
    port.idle, port.broken = {"blake3:bb"}, {"blake3:cc"}
    for name, message in (("bb", "no effect"), ("cc", "does not load")):
        with pytest.raises(BackendError, match=message):
            engine.attach(named(adapter, name))
        assert port.removed[-1].digest == f"blake3:{name}"
        assert not port.removed[-1].folder.exists()
    port.n_lost = 2
    with pytest.raises(BackendError, match="expected 12, found 10"):
        engine.attach(named(adapter, "dd"))
    # Even the served one, should its own proof fail when it is attached again, stays in place.
    with pytest.raises(BackendError):
        engine.attach(named(adapter, "aa"))
    engine.generate([prompt(50)], GREEDY)
    assert port.served[-1] is not None
    assert port.served[-1].digest == "blake3:aa"
    assert port.served[-1].folder.exists()


def test_adapters_beyond_two_are_unloaded_and_never_come_back_under_their_number(
    port: TablePort, engine: VllmEngine, adapter: AdapterFiles
) -> None:
    for name in ("aa", "bb", "cc", "aa"):
        engine.attach(named(adapter, name))
    assert [served.digest for served in port.removed] == ["blake3:aa", "blake3:bb"]
    assert len({served.number for served in port.loaded}) == 4


def test_an_adapter_that_does_not_fit_never_reaches_the_port(
    port: TablePort, engine: VllmEngine, adapter: AdapterFiles
) -> None:
    with pytest.raises(BackendError, match="missing in the file"):
        engine.attach(tiny_engine.without_one_tensor(adapter))
    assert port.loaded == []


def test_closing_gives_everything_back(
    port: TablePort, engine: VllmEngine, adapter: AdapterFiles
) -> None:
    engine.attach(adapter)
    engine.close()
    assert port.closed
    assert not port.loaded[0].folder.exists()


def test_the_identity_is_the_ports_and_the_options(engine: VllmEngine) -> None:
    identity = engine.identity
    assert (identity.name, identity.version, identity.device) == ("vllm", "table 1", "table")
    assert (identity.dtype, identity.quantisation, identity.publishable) == (
        "float32",
        "none",
        True,
    )
    assert identity.flags == {"a": "b"}


def pretend(monkeypatch: pytest.MonkeyPatch, device_type: str) -> None:
    """A build of vLLM that finds this device."""
    platforms = types.ModuleType("vllm.platforms")
    platforms.current_platform = types.SimpleNamespace(  # type: ignore[attr-defined]
        device_type=device_type
    )
    monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the port sets is put back."""
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        monkeypatch.setenv(name, "before")
    for name in ("HF_HUB_OFFLINE", "VLLM_LOGGING_LEVEL", "VLLM_CPU_OMP_THREADS_BIND"):
        monkeypatch.setenv(name, "before")


@pytest.mark.usefixtures("own_environment")
def test_a_build_without_a_device_is_refused_in_plain_words(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    pretend(monkeypatch, "")
    with pytest.raises(BackendError, match="finds no device here; the usual build needs a GPU"):
        VllmPort(folder, OPTIONS)
    pretend(monkeypatch, "cuda")
    with pytest.raises(BackendError, match="expected cpu, found cuda"):
        VllmPort(folder, OPTIONS)


@pytest.mark.usefixtures("own_environment")
def test_a_missing_vllm_and_bad_options_are_refused(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setitem(sys.modules, "vllm.platforms", None)
    with pytest.raises(BackendError, match=r"is not installed .*\n.*gpu extra"):
        VllmPort(folder, OPTIONS)
    with pytest.raises(BackendError, match="one of 1, 8, 16"):
        VllmPort(folder, dataclasses.replace(OPTIONS, max_lora_rank=12))
    with pytest.raises(BackendError, match="float32 or bfloat16"):
        VllmPort(folder, dataclasses.replace(OPTIONS, dtype="float16"))  # type: ignore[arg-type]
