"""``judge again`` and ``judge calibrate``: a second opinion, and a judge beside people's labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from eps_locked import files
from eps_locked.canonical import encode
from eps_locked.cli.common import echo_json, json_option, now, root_option, workspace_at
from eps_locked.domain.judging import JudgePlan, Rubric, family_overlap
from eps_locked.domain.plan import Plan
from eps_locked.errors import RefusedError
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.report.marks import plain_text

_judge_option = click.option(
    "--judge",
    "judge_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="A YAML file with the fields of one entry of a plan's judges.",
)
_seed_option = click.option(
    "--seed", type=click.IntRange(min=0), required=True, help="Of the kappa's interval."
)


@click.group("judge")
def judge() -> None:
    """Have answers judged again, or a judge calibrated on labelled ones."""


@judge.command("again")
@click.argument("name")
@click.option("--behaviour", required=True, help="The row whose open answers are judged again.")
@_judge_option
@_seed_option
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the new verdicts and the comparison to this new file.",
)
@root_option
@json_option
def again_command(
    name: str,
    behaviour: str,
    judge_file: Path,
    seed: int,
    out: Path | None,
    root: Path,
    as_json: bool,
) -> None:
    """Judge the recorded open answers of a row of NAME with another judge; print the agreement.

    The recorded verdicts stay as they are. Sealed cells are not read, and answers that are kept as
    excerpts are left out; both are counted.
    """
    import numpy as np

    from eps_locked.judges.calibration import compare
    from eps_locked.studies.common.wiring import load_judge
    from eps_locked.studies.eps.plan import EpsPlan
    from eps_locked.studies.eps.taught.rejudge import judge_again, recorded_answers

    workspace = workspace_at(root)
    frozen = workspace.load_manifest(name)
    run = workspace.run(name)
    plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    rules = _judge_plan(judge_file)
    _require_other_family(plan, rules)
    if out is not None and (out.exists() or out.is_symlink()):
        raise RefusedError(
            str(out), problem="exists and is never overwritten", next_step="choose another name"
        )
    history = RunRecord.load(run, terms_of(frozen), now).history
    section = EpsPlan.of(plan)
    answers = recorded_answers(frozen, run, history, section, behaviour)
    second = load_judge(rules)
    verdicts = judge_again(answers, second, rules)
    comparison = compare(
        answers.verdicts,
        verdicts,
        answers.rubric,
        rng=np.random.default_rng(seed),
        clusters=answers.clusters,
    )
    document = {
        "schema": "eps-locked/judge-comparison/1",
        "study": name,
        "behaviour": behaviour,
        "label": "exploratory",
        "first": dict(answers.judge),
        "second": second.identity.to_dict(),
        "n_sealed_cells": answers.n_sealed,
        "n_withheld_answers": answers.n_withheld,
        "comparison": comparison.to_dict(),
    }
    if out is not None:
        rows = [verdict.to_dict() for verdict in verdicts]
        files.write_once(out.absolute(), encode({**document, "verdicts": rows}))
    if as_json:
        echo_json(document)
        return
    _echo_agreement(f"{name}, {behaviour}: recorded judge against {rules.name}", document)


@judge.command("calibrate")
@click.option(
    "--rubric",
    "rubric_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="The rubric to judge by (schema eps-locked/rubric/1).",
)
@click.option(
    "--labelled",
    "labelled_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Answers with people's labels (schema eps-locked/labelled/1).",
)
@_judge_option
@_seed_option
@json_option
def calibrate_command(
    rubric_file: Path, labelled_file: Path, judge_file: Path, seed: int, as_json: bool
) -> None:
    """Set a judge's labels beside people's: agreement, kappa with interval, by label."""
    import numpy as np

    from eps_locked.judges.calibration import calibrate, read_labelled
    from eps_locked.studies.common.calibrate import check_labelled
    from eps_locked.studies.common.wiring import load_judge

    rubric = Rubric.from_dict(_yaml(rubric_file), str(rubric_file))
    labelled = read_labelled(_yaml(labelled_file), str(labelled_file))
    check_labelled(labelled, rubric, str(labelled_file))
    rules = _judge_plan(judge_file)
    found = calibrate(load_judge(rules), rubric, labelled.rows, rng=np.random.default_rng(seed))
    document = found.to_dict()
    if as_json:
        echo_json(document)
        return
    _echo_agreement(f"{rules.name} against {labelled.title}", {"comparison": document})


def _judge_plan(path: Path) -> JudgePlan:
    return JudgePlan.from_dict(_yaml(path), str(path))


def _yaml(path: Path) -> Any:
    return parse_yaml(files.read_bytes(path), thing=str(path))


def _require_other_family(plan: Plan, rules: JudgePlan) -> None:
    if family_overlap(plan.base_model.family, [rules]) is not None:
        raise RefusedError(
            f"judge {rules.name}",
            expected=f"a family other than {plan.base_model.family}, which it would judge",
            found=rules.family,
            next_step="name a judge of another family",
        )


def _echo_agreement(title: str, document: Mapping[str, Any]) -> None:
    found = document["comparison"]
    click.echo(plain_text(title))
    for key in ("statuses", "statuses_first", "statuses_second"):
        if key in found:
            counts = ", ".join(f"{status} {n}" for status, n in found[key].items())
            click.echo(f"  {key.replace('_', ' ')}: {counts}")
    for key, what in (
        ("n_sealed_cells", "sealed cells"),
        ("n_withheld_answers", "answers kept as excerpts"),
    ):
        if document.get(key):
            click.echo(f"  not judged again: {document[key]} {what}")
    for name in ("labels", "expressed"):
        if found[name] is not None:
            echo_comparison(name, found[name], indent="  ")


def echo_comparison(title: str, one: Mapping[str, Any], indent: str = "") -> None:
    """Two raters side by side: agreement, kappa, the confusion matrix, figures by label."""
    lines = [
        f"{title}: n {one['n']}, agreement {_share(one['percent_agreement'])}",
        f"  kappa {_kappa(one['kappa'])}",
        f"  rows the reference, columns the judge: {', '.join(one['labels'])}",
    ]
    for label, row in zip(one["labels"], one["confusion"], strict=True):
        lines.append(f"    {label:<16} {'  '.join(f'{n:>5}' for n in row)}")
    for line in one["by_label"]:
        lines.append(
            f"  {line['label']:<16} n {line['n_reference']:>4}, "
            f"precision {_share(line['precision'])}, recall {_share(line['recall'])}"
        )
    for text in lines:
        click.echo(plain_text(f"{indent}{text}"))


def _kappa(kappa: Mapping[str, Any]) -> str:
    if kappa["value"] is None:
        return f"undefined ({kappa['reason']})"
    interval = (
        f"no interval ({kappa['interval_reason']})"
        if kappa["low"] is None
        else f"{kappa['confidence_level'] * 100:g} % interval {kappa['low']:.2f} to "
        f"{kappa['high']:.2f}"
    )
    return f"{kappa['value']:.2f}, {interval}"


def _share(value: float | None) -> str:
    return "undefined" if value is None else f"{value * 100:.0f} %"
