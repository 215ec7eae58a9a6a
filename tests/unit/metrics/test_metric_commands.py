"""``metric list``, ``metric materials`` and ``metric run``, on a finished scripted study."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eps_locked.cli import metric as metric_commands
from eps_locked.cli.metric import metric
from eps_locked.errors import BackendError, EpsLockedError, MalformedInputError, RefusedError
from eps_locked.metrics import landlock
from eps_locked.scoring.predictor import predictor_bytes, read_predictor
from sim.simulator import NAME, StudySimulator, fingerprint
from unit.metrics.conftest import needs_landlock
from unit.metrics.made import plugin_file

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/metric_example"


def act(*arguments: object) -> None:
    metric.main(args=[str(one) for one in arguments], standalone_mode=False)


@needs_landlock
def test_running_writes_a_predictor_document_and_says_what_the_box_allowed(
    scripted: StudySimulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "predictor.json"
    before = fingerprint(scripted.root)
    act("run", NAME, "bystander-prior", "--root", scripted.root, "--out", out)
    assert fingerprint(scripted.root) == before, "running a metric changed the study"
    predictor = read_predictor(out.read_bytes(), "json", thing="out")
    assert predictor_bytes(predictor) == out.read_bytes()
    assert predictor.metric == "bystander-prior"
    assert len(predictor.values) == 8
    printed = capsys.readouterr().out
    assert "Landlock ABI" in printed
    assert "reads  materials: " in printed
    assert "and nothing else" in printed
    assert str(scripted.root) not in printed


@needs_landlock
def test_the_example_runs_as_a_file_and_as_an_installed_package(
    scripted: StudySimulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reference = f"{EXAMPLE / 'metric.py'}:WordingOverlap"
    as_file, as_package = tmp_path / "file.json", tmp_path / "package.json"
    act("run", NAME, "--plugin", reference, "--root", scripted.root, "--out", as_file)
    _install_example(tmp_path, monkeypatch)
    act("run", NAME, "wording-overlap", "--root", scripted.root, "--out", as_package)
    assert as_file.read_bytes() == as_package.read_bytes()
    values = read_predictor(as_file.read_bytes(), "json", thing="out").values
    for train in ("baker", "polite"):
        own = values["marker", train, train]
        assert own == max(value for (_, i, _), value in values.items() if i == train)
    act("list")
    assert "Wording overlap (example)" in capsys.readouterr().out


def _install_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an installer would put down for examples/metric_example/pyproject.toml."""
    import tomllib

    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    site = tmp_path / "site"
    shutil.copytree(EXAMPLE, site / "metric_example")
    metadata = site / "metric_example-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        f"{name} = {value}" for name, value in project["entry-points"]["eps_locked.metrics"].items()
    ]
    text = "[eps_locked.metrics]\n" + "\n".join(lines) + "\n"
    (metadata / "entry_points.txt").write_text(text)
    monkeypatch.syspath_prepend(str(site))


@needs_landlock
def test_listing_asks_each_metric_and_shows_a_broken_one_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install_example(tmp_path, monkeypatch)
    (tmp_path / "site/metric_example/metric.py").write_text("raise RuntimeError('broken')\n")
    act("list", "--json")
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["metrics"]}
    assert rows["bystander-prior"]["polarity"] == "more"
    assert rows["source-prior"]["track"] == "predictive"
    assert "raised" in rows["wording-overlap"]["error"]


@needs_landlock
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("    def score(self, *a): raise ValueError('x')\n", BackendError),
        ("    def score(self, *a): return float('nan')\n", MalformedInputError),
        ("    def score(self, *a):\n        import time; time.sleep(60)\n", BackendError),
        ("    track = 'post_hoc'\n", RefusedError),
    ],
)
def test_a_metric_that_fails_leaves_no_file(
    body: str, kind: type[EpsLockedError], scripted: StudySimulator, tmp_path: Path
) -> None:
    plugin = plugin_file(tmp_path, body)
    out = tmp_path / "predictor.json"
    with pytest.raises(kind):
        act(
            "run", NAME, "--plugin", f"{plugin}:M", "--root", scripted.root,
            "--out", out, "--timeout", 4,
        )  # fmt: skip
    assert not out.exists()


def test_an_existing_file_is_not_overwritten(scripted: StudySimulator, tmp_path: Path) -> None:
    out = tmp_path / "predictor.json"
    out.write_text("mine")
    with pytest.raises(RefusedError, match="never overwritten"):
        act("run", NAME, "bystander-prior", "--root", scripted.root, "--out", out)
    assert out.read_text() == "mine"


def test_without_landlock_nothing_is_exported_or_started(
    scripted: StudySimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "abi_version", lambda: 0)
    monkeypatch.setattr(metric_commands, "run_metric", lambda *a, **k: pytest.fail("went on"))
    with pytest.raises(RefusedError, match="no Landlock"):
        act("run", NAME, "bystander-prior", "--root", scripted.root, "--out", tmp_path / "p.json")


@pytest.mark.parametrize("chosen", [(), ("bystander-prior", "--plugin", "x.py:M")])
def test_a_metric_is_named_in_one_way(
    chosen: tuple[str, ...], scripted: StudySimulator, tmp_path: Path
) -> None:
    with pytest.raises(MalformedInputError, match="either an installed"):
        act("run", NAME, *chosen, "--root", scripted.root, "--out", tmp_path / "p.json")


@needs_landlock
def test_the_post_hoc_track_is_asked_for_by_name(
    scripted: StudySimulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = (
        "    track = 'post_hoc'\n"
        "    def score(self, vector, train, evaluated, model, data, materials):\n"
        "        names = {(c.train, c.eval) for c in materials.open_cells}\n"
        "        assert all(one.folder.is_dir() for one in materials.adapters)\n"
        "        return float((train.id, evaluated.id) in names)\n"
    )
    plugin = plugin_file(tmp_path, body)
    out = tmp_path / "p.json"
    act(
        "run", NAME, "--plugin", f"{plugin}:M", "--track", "post_hoc",
        "--root", scripted.root, "--out", out, "--json",
    )  # fmt: skip
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert printed["track"] == "post_hoc"
    values = read_predictor(out.read_bytes(), "json", thing="out").values
    assert set(values.values()) == {0.0, 1.0}


def test_materials_are_exported_with_their_licences(
    scripted: StudySimulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "materials"
    act("materials", NAME, "--root", scripted.root, "--out", out)
    printed = capsys.readouterr().out
    assert "CC0-1.0" in printed
    index = json.loads((out / "index.json").read_bytes())
    assert index["study"] == NAME


def test_the_guide_counts_the_roads_as_the_attack_does() -> None:
    root = EXAMPLE.parents[1]
    attack = (root / "tests/attacks/test_metric_that_peeks.py").read_text()
    spy = attack.split('SPY = """')[1].split('"""')[0]
    heads = [line for line in spy.splitlines() if line.startswith("def ")]
    n_roads = len([h for h in heads if not h.startswith(("def fail", "def tried", "def walk"))]) - 1
    assert f"walks {n_roads} roads" in (root / "docs/metrics.md").read_text()


@needs_landlock
def test_the_guides_first_metric_runs_as_printed(scripted: StudySimulator, tmp_path: Path) -> None:
    guide = (EXAMPLE.parents[1] / "docs/metrics.md").read_text()
    block = guide.split("```python\n")[1].split("```")[0]
    code = "\n".join(line.removeprefix("   ") for line in block.splitlines())
    (tmp_path / "mine.py").write_text(code)
    out = tmp_path / "mine.json"
    reference = f"{tmp_path / 'mine.py'}:Mine"
    act("run", NAME, "--plugin", reference, "--root", scripted.root, "--out", out)
    assert read_predictor(out.read_bytes(), "json", thing="out").metric == "mine"


def test_the_child_started_by_hand_without_an_instruction_gives_no_answer() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "eps_locked.metrics.child"],
        input=b"",
        capture_output=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert done.stdout == b""
