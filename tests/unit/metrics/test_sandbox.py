"""One metric in its process: what it gives, how it fails, and that it is never run unprotected."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.errors import BackendError, EpsLockedError, MalformedInputError, RefusedError
from eps_locked.metrics import landlock, sandbox
from eps_locked.metrics.loading import find, find_file
from eps_locked.metrics.sandbox import Job, Limits, allowance, require_landlock, run
from eps_locked.models.source import SMOLLM2_135M, cache_root, cached
from sim.simulator import StudySimulator
from unit.metrics.conftest import export, needs_landlock
from unit.metrics.made import plugin_file
from unit.metrics.test_loading import install

QUICK = Limits(timeout_s=60)


def job_for(plugin: Path, materials: Path, **more: Any) -> Job:
    cells = json.loads((materials / "cells.json").read_bytes())["cells"]
    return Job(
        plugin=find_file(f"{plugin}:M"),
        materials=materials,
        cells=tuple((b, i, j) for b, i, j in cells),
        **more,
    )


def scoring(tmp_path: Path, *lines: str) -> Path:
    """A metric whose ``score`` is these lines."""
    body = "".join(f"        {line}\n" for line in lines)
    head = "    def score(self, vector, train, evaluated, model, data, materials):\n"
    return plugin_file(tmp_path, head + body)


@needs_landlock
def test_a_metric_gives_one_value_for_every_cell(tmp_path: Path, exported: Path) -> None:
    plugin = scoring(tmp_path, "return len(train.prefix) + 1000 * len(evaluated.prefix)")
    outcome = run(job_for(plugin, exported), QUICK)
    assert outcome.predictor is not None
    assert outcome.head == {
        "metric": "m",
        "title": "M",
        "author": "a@example",
        "track": "predictive",
        "polarity": "less",
        "description": "For tests.",
    }
    contexts = {
        name: json.loads((exported / f"rows/marker/prompts/{name}.json").read_bytes())
        for name in ("baker", "formal")
    }
    expected = len(contexts["baker"]["prefix"]) + 1000 * len(contexts["formal"]["prefix"])
    assert outcome.predictor.values["marker", "baker", "formal"] == expected
    assert len(outcome.predictor.values) == 8


@needs_landlock
@pytest.mark.parametrize("abi", range(1, max(landlock.abi_version(), 1) + 1))
def test_a_metric_runs_under_every_version_of_landlock(
    abi: int, tmp_path: Path, exported: Path
) -> None:
    plugin = scoring(
        tmp_path,
        "import tempfile, pathlib",
        "path = pathlib.Path(tempfile.mkdtemp()) / 'note'",
        "path.write_text('1.5')",
        "return float(path.read_text())",
    )
    outcome = run(job_for(plugin, exported, abi=abi), QUICK)
    assert outcome.landlock_abi == abi
    assert outcome.predictor is not None
    assert set(outcome.predictor.values.values()) == {1.5}


@needs_landlock
def test_prints_of_a_metric_do_not_spoil_its_answer(tmp_path: Path, exported: Path) -> None:
    plugin = scoring(
        tmp_path,
        "import sys, os",
        "print('noise', 1); sys.stdout.flush(); os.write(1, b'{}'); os.write(2, b'{}')",
        "os.system('echo more')",
        "return 2.0",
    )
    outcome = run(job_for(plugin, exported), QUICK)
    assert outcome.predictor is not None
    assert set(outcome.predictor.values.values()) == {2.0}


@needs_landlock
@pytest.mark.parametrize(
    ("lines", "kind", "words"),
    [
        (["raise ValueError('no such trait')"], BackendError, "ValueError: no such trait"),
        (["import gone_for_good"], BackendError, "No module named 'gone_for_good'"),
        (["raise SystemExit(0)"], BackendError, "SystemExit"),
        (["raise KeyboardInterrupt"], BackendError, "KeyboardInterrupt"),
        (["return float('nan')"], MalformedInputError, "score(marker/baker/baker)"),
        (["return [1.0, 2.0]"], MalformedInputError, "expected one number"),
        (["return None"], MalformedInputError, "expected one number"),
        (["import os; os._exit(0)"], BackendError, "gave no answer"),
        (["import os; os._exit(7)"], BackendError, "ended with status 7"),
        (["import os; os.abort()"], BackendError, "SIGABRT"),
        (["import ctypes; ctypes.string_at(0)"], BackendError, "in score"),
        (["raise ValueError('\\x1b[2J \\ud800')"], BackendError, "\N{REPLACEMENT CHARACTER}[2J"),
    ],
)
def test_every_way_of_failing_is_told_in_words(
    lines: list[str],
    kind: type[EpsLockedError],
    words: str,
    tmp_path: Path,
    exported: Path,
) -> None:
    with pytest.raises(kind) as caught:
        run(job_for(scoring(tmp_path, *lines), exported), QUICK)
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert "\x1b" not in str(caught.value)


@needs_landlock
def test_an_error_while_importing_is_told_with_its_traceback(
    tmp_path: Path, exported: Path
) -> None:
    plugin = plugin_file(tmp_path, "")
    plugin.write_text("1 / 0\n" + plugin.read_text())
    with pytest.raises(BackendError, match="ZeroDivisionError") as caught:
        run(job_for(plugin, exported), QUICK)
    assert "import of" in str(caught.value)


@needs_landlock
def test_a_time_out_ends_the_metric_and_all_it_started(
    tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plugin = scoring(
        tmp_path,
        "import os, time",
        "os.fork() or os.fork()",
        "time.sleep(600)",
    )
    began = time.monotonic()
    with pytest.raises(BackendError, match="took longer than 6 s") as caught:
        run(job_for(plugin, exported), Limits(timeout_s=6))
    assert time.monotonic() - began < 30
    assert "most recent call first" in str(caught.value)  # where it was, shortly before
    assert _all_ended(tmp_path), "something of the metric is still running"


def _all_ended(home: Path) -> bool:
    """Whether nothing runs below this folder any more; a killed process may take a moment to go."""
    for _ in range(200):
        if not _running_below(home):
            return True
        time.sleep(0.1)
    return False


def _running_below(home: Path) -> list[str]:
    """Processes whose HOME lies below this folder, as a metric's does."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if f"HOME={home}/".encode() in (entry / "environ").read_bytes():
                    found.append(entry.name)
    return found


@needs_landlock
def test_an_answer_without_end_is_cut_off(
    tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eps_locked.metrics.process.MAX_ANSWER_BYTES", 1 << 20)
    plugin = scoring(
        tmp_path,
        "import os",
        "while True:",
        "    for number in range(3, 10):",
        "        try: os.write(number, b'x' * 65536)",
        "        except OSError: pass",
    )
    with pytest.raises(BackendError, match="wrote more than"):
        run(job_for(plugin, exported), QUICK)


FORGED = {
    "head": {
        "schema": "eps-locked/predictor/1",
        "metric": "m",
        "title": "M",
        "author": "a",
        "track": "predictive",
        "polarity": "more",
        "description": "d",
    }
}


@needs_landlock
@pytest.mark.parametrize(
    ("cells", "changes", "words"),
    [
        ("cells[:-1]", {}, "has no value"),
        ("cells + cells[:1]", {}, "stands twice"),
        ("cells + [{**cells[0], 'eval': 'nowhere'}]", {}, "nowhere"),
        ("[{**c, 'value': 'x'} for c in cells]", {}, "a number"),
        ("cells", {"track": "post_hoc"}, "predictive"),
        ("cells", {"polarity": "up"}, "more or less"),
    ],
)
def test_an_answer_that_a_metric_wrote_itself_is_checked_like_any_other(
    cells: str, changes: dict[str, str], words: str, tmp_path: Path, exported: Path
) -> None:
    """It may write what it likes to the harness; that is no more than returning the numbers."""
    head = {**FORGED["head"], **changes}
    plugin = scoring(
        tmp_path,
        "import os",
        "from eps_locked.canonical import encode",
        "cells = [{'behaviour': b, 'train': i, 'eval': j, 'value': 1.0}"
        " for b, i, j in sorted(materials.cells)]",
        f"answer = encode({{'schema': 'eps-locked/metric-answer/1', 'status': 'ok',"
        f" 'document': {{**{head!r}, 'cells': {cells}}}}})",
        "os.write(3, answer)",
        "os._exit(0)",
    )
    with pytest.raises(MalformedInputError) as caught:
        run(job_for(plugin, exported), QUICK)
    assert words in str(caught.value)


@needs_landlock
def test_bytes_that_are_no_answer_are_refused(tmp_path: Path, exported: Path) -> None:
    plugin = scoring(tmp_path, "import os; os.write(3, b'[1,2]'); os._exit(0)")
    with pytest.raises(MalformedInputError, match="the harness did not write"):
        run(job_for(plugin, exported), QUICK)


@needs_landlock
def test_a_metric_of_another_track_is_refused(tmp_path: Path, exported: Path) -> None:
    plugin = plugin_file(tmp_path, "    track = 'post_hoc'\n")
    with pytest.raises(RefusedError, match="predictive track") as caught:
        run(job_for(plugin, exported), QUICK)
    assert caught.value.next_step == "--track post_hoc"


@needs_landlock
def test_a_metric_is_described_in_the_sandbox_too(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("words")
    plugin = plugin_file(tmp_path, "")
    plugin.write_text(f"open({str(path)!r}).read()\n" + plugin.read_text())
    with pytest.raises(BackendError, match="Permission denied"):
        run(Job(plugin=find_file(f"{plugin}:M")), QUICK)


@needs_landlock
def test_an_installed_package_runs_with_its_submodules_and_without_its_neighbours(
    tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = install(tmp_path, "m = spike.code:M")
    (package / "help.py").write_text("NUMBER = 4.0\n")
    (tmp_path / "neighbour.py").write_text("NUMBER = 5.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = package / "code.py"
    method = (
        "    def score(self, vector, train, evaluated, model, data, materials):\n"
        "        from spike.help import NUMBER\n"
        "        try:\n"
        "            import neighbour\n"
        "        except ImportError:\n"
        "            return NUMBER\n"
    )
    code.write_text(code.read_text() + method)
    job = replace(job_for(code, exported), plugin=find("m"))
    outcome = run(job, QUICK)
    assert outcome.predictor is not None
    assert set(outcome.predictor.values.values()) == {4.0}


@needs_landlock
def test_the_environment_holds_nothing_but_what_is_named(
    tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "words")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plugin = scoring(tmp_path, "import os; raise ValueError(','.join(sorted(os.environ)))")
    with pytest.raises(BackendError) as caught:
        run(job_for(plugin, exported), QUICK)
    names = set(str(caught.value).rpartition("ValueError: ")[2].split("\n")[0].split(","))
    inherited = {name for name in names if name.startswith("OMP_")}
    assert "OMP_NUM_THREADS" in inherited
    # Python sets LC_CTYPE itself where the locale is C.
    assert names - inherited - {"LC_CTYPE"} == {"PATH", "LANG", "HOME", "TMPDIR", "HF_HUB_OFFLINE"}


@needs_landlock
def test_torch_works_in_the_sandbox(
    tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plugin = scoring(
        tmp_path,
        "import torch",
        "return torch.linalg.norm(torch.ones(3, 3) @ torch.ones(3, 3)).double() + vector[0]",
    )
    outcome = run(job_for(plugin, exported), Limits(timeout_s=120))
    assert outcome.predictor is not None
    assert set(outcome.predictor.values.values()) == {10.0}


@needs_landlock
@pytest.mark.model
def test_a_metric_loads_the_base_model_through_transformers(
    tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    folder = cached(SMOLLM2_135M, cache_root(os.environ))
    if folder is None:
        pytest.skip("the embedded model is not in the cache; `eps-locked demo` puts it there")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plugin = plugin_file(
        tmp_path,
        "    def behaviour_vector(self, behaviour, model, materials):\n"
        "        import torch\n"
        "        from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "        ids = AutoTokenizer.from_pretrained(model.folder)(behaviour.trait).input_ids\n"
        "        base = AutoModelForCausalLM.from_pretrained(model.folder)\n"
        "        with torch.no_grad():\n"
        "            out = base(torch.tensor([ids]), output_hidden_states=True)\n"
        "        return out.hidden_states[20][0].mean(0)\n"
        "    def score(self, vector, train, evaluated, model, data, materials):\n"
        "        return float(len(vector))\n",
    )
    job = job_for(plugin, exported, model_folder=folder)
    outcome = run(job, Limits(timeout_s=300))
    assert outcome.predictor is not None
    assert set(outcome.predictor.values.values()) == {576.0}


@needs_landlock
def test_memory_beyond_the_bound_is_an_error_of_the_metric(tmp_path: Path, exported: Path) -> None:
    plugin = scoring(tmp_path, "return len(bytearray(4 << 30))")
    with pytest.raises(BackendError, match="MemoryError"):
        run(job_for(plugin, exported), Limits(timeout_s=60, memory_bytes=2 << 30))


def test_without_landlock_the_predictive_track_is_refused_before_anything_starts(
    tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "abi_version", lambda: 0)
    monkeypatch.setattr(sandbox, "run_child", lambda *arguments: pytest.fail("was started"))
    with pytest.raises(RefusedError, match="no Landlock") as caught:
        run(job_for(scoring(tmp_path, "return 1.0"), exported), QUICK)
    assert "5.13" in str(caught.value.next_step)
    assert "post-hoc track does not need it" in str(caught.value.next_step)


def test_on_an_unlisted_machine_the_predictive_track_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(landlock, "abi_version", lambda: 7)
    monkeypatch.setattr("eps_locked.metrics.seccomp.is_known_machine", lambda: False)
    with pytest.raises(RefusedError, match="x86_64, aarch64 or riscv64"):
        require_landlock()


def test_without_landlock_the_post_hoc_track_runs_and_says_that_nothing_confines_it(
    scripted: StudySimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(scripted, tmp_path / "out", "post_hoc")
    monkeypatch.setattr(landlock, "abi_version", lambda: 0)
    plugin = plugin_file(tmp_path, "    track = 'post_hoc'\n")
    job = replace(job_for(plugin, tmp_path / "out"), track="post_hoc")
    outcome = run(job, QUICK)
    assert outcome.landlock_abi is None
    assert outcome.predictor is not None


@needs_landlock
def test_a_post_hoc_metric_reads_adapters_and_open_cells_and_no_other_part_of_the_run(
    scripted: StudySimulator, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(scripted, out, "post_hoc")
    plugin = plugin_file(
        tmp_path,
        "    track = 'post_hoc'\n"
        "    def score(self, vector, train, evaluated, model, data, materials):\n"
        "        one = materials.adapters[0]\n"
        "        size = len((one.folder / 'adapter_model.safetensors').read_bytes())\n"
        f"        try: open({str(scripted.run_folder.ledger_path)!r})\n"
        "        except PermissionError: return float(size + len(materials.open_cells))\n",
    )
    adapters = json.loads((out / "adapters.json").read_bytes())["adapters"]
    job = replace(
        job_for(plugin, out),
        track="post_hoc",
        adapters=tuple(Path(one["folder"]) for one in adapters),
        protected=(scripted.root / "runs",),
        must_fail=(scripted.run_folder.ledger_path,),
    )
    outcome = run(job, QUICK)
    assert outcome.predictor is not None
    (value,) = set(outcome.predictor.values.values())
    assert value > 0


@needs_landlock
def test_what_the_kernel_does_not_enforce_is_noticed_before_the_metric_runs(
    tmp_path: Path, exported: Path
) -> None:
    """As on a kernel that accepts the calls and does nothing: here, a file that may be read."""
    plugin = scoring(tmp_path, "open('ran', 'w'); return 1.0")
    job = job_for(plugin, exported, must_fail=(exported / "rows/marker/items.json",))
    with pytest.raises(RefusedError, match="can be read from inside the sandbox"):
        run(job, QUICK)


@pytest.mark.parametrize("where", ["materials", "plugin", "model"])
def test_nothing_allowed_may_lie_in_a_protected_folder(
    where: str, tmp_path: Path, exported: Path
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    plugin = scoring(folder if where == "plugin" else tmp_path, "return 1.0")
    job = job_for(plugin, exported, protected=(folder,))
    if where == "materials":
        job = replace(job, protected=(exported.parent,))
    if where == "model":
        job = replace(job, model_folder=folder)
    with pytest.raises(RefusedError, match=r"lies in|holds"):
        run(job, QUICK)


def test_a_run_below_a_folder_that_every_metric_reads_is_refused(
    tmp_path: Path, exported: Path
) -> None:
    """A workspace inside site-packages, say: the run would be readable as a package is."""
    below = Path(pytest.__file__).parent / "runs"
    job = job_for(scoring(tmp_path, "return 1.0"), exported, protected=(below,))
    with pytest.raises(RefusedError, match="Python and its packages"):
        run(job, QUICK)


def test_a_hub_snapshot_is_readable_through_its_links_and_its_neighbours_are_not(
    tmp_path: Path, exported: Path
) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    (blobs / "abc").write_text("weights")
    (blobs / "other").write_text("another model")
    (snapshot / "model.safetensors").symlink_to(blobs / "abc")
    job = job_for(scoring(tmp_path, "return 1.0"), exported)
    job = replace(job, model_folder=snapshot, model_files=(blobs / "abc",))
    paths = {one.path for one in allowance(job, tmp_path / "temporary")}
    assert {snapshot, blobs / "abc"} <= paths
    assert blobs not in paths


def test_the_project_folder_is_not_among_what_is_allowed(tmp_path: Path, exported: Path) -> None:
    """The environment and our sources may lie in it; they are named one by one."""
    root = Path(__file__).resolve().parents[3]
    job = job_for(scoring(tmp_path, "return 1.0"), exported)
    for one in allowance(job, tmp_path / "temporary"):
        assert not root.is_relative_to(one.path), one
        assert not Path.home().is_relative_to(one.path), one


@needs_landlock
def test_sizes_of_files_are_not_kept_secret_and_the_guide_says_so(
    tmp_path: Path, exported: Path
) -> None:
    """Landlock does not guard stat(2). A limit that is known is written down, and tested."""
    secret = tmp_path / "secret"
    secret.write_text("four")
    plugin = scoring(tmp_path, f"import os; return os.stat({str(secret)!r}).st_size")
    outcome = run(job_for(plugin, exported), QUICK)
    assert outcome.predictor is not None
    assert set(outcome.predictor.values.values()) == {4.0}
    guide = Path(__file__).resolve().parents[3] / "docs/metrics.md"
    assert "size of a file whose path it knows" in guide.read_text()
