"""The command line judged from outside: exit codes, what a refusal says, what is imported.

A study on the scripted model lives in a temporary folder. Each command is a process of its own,
as a user's would be; there are few of them, since starting Python is what costs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from eps_locked.cli.main import _COMMANDS, cli
from sim.forge import flip
from sim.simulator import AUTHOR, NAME, StudySimulator, fingerprint, tiny_plan

HEAVY = (
    "torch",
    "transformers",
    "peft",
    "tokenizers",
    "safetensors",
    "datasets",
    "huggingface_hub",
    "anthropic",
    "openai",
    "wordllama",
    "vllm",
)
READING = ("numpy", "scipy", "pyarrow")

# Runs a command and then says, on stderr, which of the named modules it brought in.
WATCHED = """
import sys
from eps_locked.cli.main import run
code = run(sys.argv[2:])
loaded = [name for name in sys.argv[1].split(",") if name in sys.modules]
print("LOADED", *loaded, file=sys.stderr)
sys.exit(code)
"""

# Runs a command with an engine at which somebody presses Ctrl-C.
INTERRUPTED = """
import sys
from eps_locked.cli.main import run
from eps_locked.engines.scripted import ScriptedEngine

def generate(*arguments, **named):
    raise KeyboardInterrupt

ScriptedEngine.generate = generate
sys.exit(run(sys.argv[1:]))
"""


class Outside:
    """A study in a folder, and the commands people type in it."""

    def __init__(self, study: StudySimulator) -> None:
        self.study = study
        self.root = study.root

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "eps_locked.cli.main", *words, code=code)

    def python(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        key = str(self.study.key(AUTHOR))
        result = subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            cwd=self.root,
            env={**os.environ, "EPS_LOCKED_KEY": key, "OMP_NUM_THREADS": "1"},
            check=False,
        )
        assert "Traceback" not in result.stderr, result.stderr
        assert result.returncode == code, result.stdout + result.stderr
        return result


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Outside:
    """Frozen and P0 run, by commands."""
    root = tmp_path_factory.mktemp("cli") / "study"
    study = StudySimulator(root=root, plan=tiny_plan(), model_files={})
    study.write_plan()
    commands = Outside(study)
    assert "no problem found" in commands("plan", "check", f"plans/{NAME}.yaml").stdout
    assert "just authorize small P0" in commands("freeze", NAME).stdout
    assert "just run-phase small P0" in commands("authorize", NAME, "P0").stdout
    assert "complete, results blake3:" in commands("run-phase", NAME, "P0").stdout
    return commands


def test_0_and_1_and_the_json_of_the_reading_commands(outside: Outside) -> None:
    status = json.loads(outside("status", NAME, "--json").stdout)
    assert status["next"] == "just authorize small P1"
    assert [row["closed"] for row in status["phases"]] == [True, False]
    checked = json.loads(outside("check-evidence", NAME, "--json", code=1).stdout)
    assert checked["ok"] is False
    assert [check["number"] for check in checked["checks"] if not check["ok"]] == [11]
    verdict = outside.root / checked["verdict"]
    assert json.loads(verdict.read_bytes())["payload"]["ledger_head"] == checked["ledger_head"]
    planned = json.loads(outside("plan", "check", f"plans/{NAME}.yaml", "--json").stdout)
    assert [row["phase"] for row in planned["phases"]] == ["P0", "P1"]


def test_2_for_a_plan_with_problems_each_on_its_line(outside: Outside) -> None:
    path = outside.root / "plans/bad.yaml"
    path.write_text((outside.root / f"plans/{NAME}.yaml").read_text().replace("[5, 12]", "5"))
    plan = json.loads(path.read_text()) | {"name": "bad", "seeds": "many", "study": "epsilon"}
    path.write_text(json.dumps(plan))
    result = outside("plan", "check", "plans/bad.yaml", code=2)
    assert result.stderr.startswith("malformed: plans/bad.yaml: has 2 problems")
    assert "\n  seeds: " in result.stderr
    assert "\n  study: " in result.stderr
    assert "\n  next: " in result.stderr
    path.unlink()


def test_3_and_a_refusal_that_names_thing_expected_found_and_next(outside: Outside) -> None:
    before = fingerprint(outside.root / "runs", outside.root / "manifests")
    path = outside.root / f"plans/{NAME}.yaml"
    flip(path)
    result = outside("run-phase", NAME, "P1", code=3)
    flip(path)
    assert result.stderr.startswith(f"refused: plans/{NAME}.yaml: expected blake3:")
    assert ", found blake3:" in result.stderr
    assert "\n  next: put the frozen bytes back" in result.stderr
    assert result.stdout == ""
    assert fingerprint(outside.root / "runs", outside.root / "manifests") == before


def test_4_for_a_key_that_cannot_sign(outside: Outside) -> None:
    broken = outside.root / "secret/broken"
    broken.write_text("no key")
    broken.chmod(0o600)
    result = outside("authorize", NAME, "P1", "--key", str(broken), code=4)
    assert result.stderr.startswith("failed: signature for document.json: ssh-keygen failed")
    assert not list((outside.root / "runs/small/authorizations").glob("P1-*"))


def test_130_for_an_interrupt_and_then_the_rest_of_the_study(outside: Outside) -> None:
    outside("authorize", NAME, "P1")
    result = outside.python("-c", INTERRUPTED, "run-phase", NAME, "P1", code=130)
    assert "the same command resumes" in result.stderr
    outside("run-phase", NAME, "P1")
    status = json.loads(outside("status", NAME, "--json").stdout)
    assert status["phases"][1]["aborted"] == 1
    # A finished study is checked without any of what it took to run it.
    result = outside.python("-c", WATCHED, ",".join(HEAVY), "check-evidence", NAME, "--json")
    assert json.loads(result.stdout)["ok"] is True
    assert "LOADED\n" in result.stderr


def test_help_imports_nothing_heavy(outside: Outside) -> None:
    result = outside.python("-c", WATCHED, ",".join((*HEAVY, *READING)), "--help")
    assert "check-evidence" in result.stdout
    assert "LOADED\n" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("frobnicate",),
        ("run-phase",),
        ("run-phase", NAME, "P1", "--force"),
        ("run-phase", NAME, "P1", "--limit", "0"),
        ("authorize", NAME, "P1", "--cap-gpu-hours", "nan"),
        ("authorize", NAME, "P1", "--cap-gpu-hours", "1e-12"),
        ("authorize", NAME, "P1", "--valid-hours", "1e300"),
        ("authorize", NAME, "P1", "--valid-hours", "-1"),
        ("authorize", NAME, "P1", "--at", "yesterday"),
        ("freeze", "../small"),
        ("check-evidence", "Small"),
        ("plan", "check", "plans/none.yaml"),
        ("plan", "check", "keys/small.yaml"),
        ("status", "nobody"),
    ],
)
def test_wrong_words_are_malformed_input(
    tmp_path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: only the translation to exit codes is looked at."""
    from eps_locked.cli.main import run

    study = StudySimulator(root=tmp_path / "study", plan=tiny_plan())
    study.freeze()
    before = fingerprint(study.root)
    words = tuple(word.replace("plans/", f"{study.root}/plans/") for word in words)
    takes_root = len(words) > 1 and words[0] != "plan"
    extra = ["--root", str(study.root)] if takes_root else []
    if words[0] == "authorize":
        extra += ["--key", str(study.key(AUTHOR))]
    assert run([*words, *extra]) == 2
    captured = capsys.readouterr()
    assert captured.err
    assert fingerprint(study.root) == before


def test_a_disk_that_says_no_is_a_backends_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from eps_locked.cli import main

    def denied(**named: object) -> None:
        raise PermissionError(13, "Permission denied", "/somewhere")

    monkeypatch.setattr(main.cli, "main", denied)
    assert main.run([]) == 4
    assert capsys.readouterr().err == "failed: /somewhere: Permission denied\n"


def commands() -> list[tuple[str, ...]]:
    """Every command that can be typed, groups included."""
    context = click.Context(cli)
    found: list[tuple[str, ...]] = []
    for name, (module, _, _) in _COMMANDS.items():
        assert importlib.util.find_spec(module) is not None, f"{name} has no module"
        command = cli.get_command(context, name)
        assert command is not None
        found.append((name,))
        if isinstance(command, click.Group):
            found += [(name, child) for child in command.list_commands(click.Context(command))]
    return found


def test_every_command_and_every_option_has_help() -> None:
    context = click.Context(cli)
    for path in commands():
        command: click.Command | None = cli
        for name in path:
            assert isinstance(command, click.Group)
            command = command.get_command(context, name)
        assert command is not None
        assert command.help, path
        assert len(command.help.splitlines()[0]) <= 100, path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{' '.join(path)}: {parameter.opts}"


def test_a_verdict_is_not_given_on_a_torn_or_missing_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from eps_locked.cli.main import run

    study = StudySimulator(root=tmp_path / "study", plan=tiny_plan())
    root = ["--root", str(study.root)]
    study.freeze()
    assert run(["check-evidence", NAME, *root]) == 1
    assert not study.run_folder.folder.exists(), "looking makes no run"
    study.authorize("P0")
    study.run("P0")
    with study.run_folder.ledger_path.open("ab") as stream:
        stream.write(b'{"digest"')
    assert run(["check-evidence", NAME, "--json", *root]) == 1
    document = json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))
    assert document["verdict"] is None
    assert not study.run_folder.verdicts.exists()


def test_the_same_verdict_twice_is_one_file_and_another_is_another(tmp_path: Path) -> None:
    from eps_locked.cli.main import run

    study = StudySimulator(root=tmp_path / "study", plan=tiny_plan())
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    root = ["--root", str(study.root)]
    for n_files in (1, 1):
        assert run(["check-evidence", NAME, *root]) == 1
        assert len(list(study.run_folder.verdicts.iterdir())) == n_files
    assert run(["check-evidence", NAME, "--quick", *root]) == 1
    assert run(["check-evidence", NAME, "--no-verdict", *root]) == 1
    assert len(list(study.run_folder.verdicts.iterdir())) == 1
    (study.run_folder.folder / "note.txt").write_text("")
    assert run(["check-evidence", NAME, *root]) == 1
    assert len(list(study.run_folder.verdicts.iterdir())) == 2
