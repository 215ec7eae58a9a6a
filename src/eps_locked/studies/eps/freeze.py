"""Freezing an ``eps`` plan: draw items, render contexts, draw the quarantine, list every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.domain.model import ChatTokenizer
from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.judges.calibration import read_labelled
from eps_locked.lock.freeze import FrozenStudy, SourceReader
from eps_locked.lock.seal import public_recipients
from eps_locked.studies.common.calibrate import check_labelled
from eps_locked.studies.common.judging import require_fair_judges
from eps_locked.studies.common.material import BehaviourFile, Item
from eps_locked.studies.common.prompts import Rendered, render
from eps_locked.studies.common.sources import read_labelled_value, require_template
from eps_locked.studies.eps.baselines.elicitation import ElicitationTexts, elicitation_documents
from eps_locked.studies.eps.plan import (
    CalibrationRules,
    EpsPlan,
    MarkerBehaviour,
    Slots,
    TaughtBehaviour,
)
from eps_locked.studies.eps.row_material import RowMaterial, read_material
from eps_locked.studies.eps.split import draw_split
from eps_locked.studies.eps.steplist import PHASES, list_steps

# What a plan can promise to compute, and hence what is confirmatory.
ANALYSES = ("tensor", "scores", "final_test")


def checked_section(plan: Plan) -> EpsPlan:
    """The plan's ``eps`` section, held against the rest of the plan: seeds, phases, judges.

    Needs no material. Raises MalformedInputError or RefusedError naming the field.
    """
    section = EpsPlan.of(plan)
    section.check_seeds(plan.seeds, plan.minimum_seeds)
    _check_phases(plan, section)
    require_fair_judges(plan, section.judges, "plan.eps.judges")
    return section


def freeze_eps(plan: Plan, reader: SourceReader, tokenizer: ChatTokenizer) -> FrozenStudy:
    """Everything an ``eps`` manifest holds beyond the common part.

    Raises MalformedInputError or RefusedError naming the field, file or context at fault.
    """
    section = checked_section(plan)
    material = read_material(section, reader)
    for relative in section.material_files:
        require_template(reader, relative, tokenizer)
    _read_recipients(plan, section, reader)
    for rules in section.calibrations:
        _read_labelled(rules, material[rules.row], reader)
    documents: dict[str, Any] = {}
    n_contexts = 0
    for name, row in material.items():
        if isinstance(row.behaviour, MarkerBehaviour):
            check_marker(row.behaviour, tokenizer, f"marker of {name}")
        else:
            documents[f"rows/{name}/written.json"] = _written_document(row, tokenizer)
        rendered = render_row(section, row, tokenizer)
        aliases = check_identities(row.slots, rendered)
        documents[f"rows/{name}/items.json"] = _items_document(row)
        documents[f"rows/{name}/contexts.json"] = _contexts_document(rendered, aliases, tokenizer)
        for context, one in rendered.items():
            documents[f"rows/{name}/prompts/{context}.json"] = one.to_dict()
        n_contexts = max(n_contexts, len(rendered))
    split = draw_split(section)
    steps = list_steps(plan, section)
    documents |= {"split.json": split, **_elicitation(section, material, tokenizer)}
    fates = list(split["cells"].values())
    return FrozenStudy(
        documents=documents,
        steps=steps,
        summary={
            "rows": len(material),
            "adapters": sum("adapter" in step.outputs for step in steps),
            "cells": sum(len(step.outputs) for step in steps if step.kind == "cells"),
            "contexts": n_contexts,
            "train_items": sum(len(row.train_items) for row in material.values()),
            "eval_items": sum(len(row.eval_items) for row in material.values()),
            "steps": len(steps),
            "held_out_cells": fates.count("held_out"),
            "quarantined_cells": fates.count("quarantined"),
        },
    )


def check_marker(behaviour: MarkerBehaviour, tokenizer: ChatTokenizer, thing: str) -> None:
    """Require that the marker is the token sequence the plan names, under this tokenizer."""
    found = tokenizer.encode(behaviour.marker_text)
    if found != behaviour.marker_ids:
        raise RefusedError(
            thing,
            problem=f"{behaviour.marker_text!r} is another token sequence under this tokenizer",
            expected=list(behaviour.marker_ids),
            found=list(found),
            next_step="write the found ids into the plan if the text (with its space) is right",
        )


def render_row(section: EpsPlan, row: RowMaterial, tokenizer: ChatTokenizer) -> dict[str, Rendered]:
    """Every context of a row, with the items it will be asked."""
    n_extra = 0 if section.baselines is None else section.baselines.n_items
    if isinstance(row.behaviour, TaughtBehaviour):
        n_extra = max(n_extra, row.behaviour.n_prior_rows)
    return {
        name: render(context, row.items_of(name, n_extra), tokenizer)
        for name, context in row.contexts.items()
    }


def _elicitation(
    section: EpsPlan, material: Mapping[str, RowMaterial], tokenizer: ChatTokenizer
) -> dict[str, dict[str, Any]]:
    """The prompts of the behaviours' directions, where the plan computes baselines."""
    if section.baselines is None:
        return {}
    texts = {name: elicitation_texts(row.file) for name, row in material.items()}
    return elicitation_documents(section.baselines.persona, texts, tokenizer)


def elicitation_texts(file: BehaviourFile) -> ElicitationTexts:
    """What a behaviour's direction is drawn from."""
    return ElicitationTexts(
        instruction_pairs=file.instruction_pairs, questions=file.questions_extract
    )


def check_identities(slots: Slots, rendered: Mapping[str, Rendered]) -> dict[str, str]:
    """Compare contexts as token ids. Returns {aliased slot: the slot it equals}.

    Raises RefusedError for contexts that render alike and are not listed as aliases, for listed
    aliases that do not, and for a negative-panel context that equals an evaluated one.
    """
    names = list(rendered)
    identity = {name: one.identity for name, one in rendered.items()}
    listed = {frozenset(pair) for pair in slots.aliases}
    aliases: dict[str, str] = {}
    for number, name in enumerate(names):
        for other in names[:number]:
            if identity[name] != identity[other]:
                continue
            panel = {name, other} & set(slots.negative_panel)
            if panel or frozenset((name, other)) not in listed:
                raise RefusedError(
                    f"context {name}",
                    problem=f"renders to the same token ids as {other}",
                    expected="distinct contexts" if panel else "a listed alias",
                    found="a context both evaluated and trained against"
                    if panel
                    else "an unlisted duplicate",
                    next_step="remove one of them"
                    if panel
                    else f"remove one, or list [{other}, {name}] under slots.aliases",
                )
            aliases.setdefault(name, other)
    for one, two in slots.aliases:
        if identity.get(one, 1) != identity.get(two, 2):
            raise RefusedError(
                f"plan.eps.slots.aliases: [{one}, {two}]",
                expected="two listed contexts that render to the same token ids",
                found="different ones",
                next_step="remove the pair",
            )
    return aliases


def _check_phases(plan: Plan, section: EpsPlan) -> None:
    needed = {"P0", *(behaviour.phase for behaviour in section.behaviours)}
    if section.baselines is not None:
        needed.add("P3")
    phases = tuple(name for name in PHASES if name in needed)
    if tuple(plan.phases) != phases:
        raise MalformedInputError(
            "plan.phases",
            expected=" then ".join(phases),
            found=" then ".join(plan.phases),
            next_step="P1 trains the marker, P2 the taught rows, P3 computes eps.baselines; each "
            "is in the plan exactly if it has something to do",
        )
    for analysis in plan.analyses:
        if analysis not in ANALYSES:
            raise MalformedInputError(
                "plan.analyses",
                expected=" or ".join(ANALYSES),
                found=analysis,
                next_step="an analysis that is not implemented cannot be promised",
            )
    for analysis, part, is_there in (
        ("scores", "eps.scoring", section.scoring is not None),
        ("final_test", "eps.scoring", section.scoring is not None),
        ("final_test", "eps.quarantine.seal: age", section.quarantine.seal == "age"),
    ):
        if analysis in plan.analyses and not is_there:
            raise MalformedInputError(
                f"plan.analyses: {analysis}",
                expected=f"{part} in the plan",
                found="none",
                next_step="a promised analysis needs its numbers frozen with it",
            )


def _read_labelled(rules: CalibrationRules, row: RowMaterial, reader: SourceReader) -> None:
    """Have a labelled set frozen, and require that it was labelled under the row's rubric."""
    assert row.rubric is not None
    value = read_labelled_value(reader, rules.file, thing="labelled", rubric=row.rubric.name)
    labelled = read_labelled(value, f"plans/{rules.file}")
    check_labelled(labelled, row.rubric, f"plans/{rules.file}")


def _read_recipients(plan: Plan, section: EpsPlan, reader: SourceReader) -> None:
    """Have the custodian's public keys frozen, and require that one can encrypt to them."""
    relative = section.quarantine.recipients
    if relative is None:
        return
    try:
        data = reader.read(relative, thing="plan.eps.quarantine.recipients")
    except MalformedInputError as error:
        raise MalformedInputError(
            error.thing,
            problem=error.problem,
            expected=error.expected,
            found=error.found,
            next_step="ask the custodian for a public key (age-keygen prints one), or: "
            f"eps-locked keys custodian --key KEYFILE --recipients plans/{relative}",
        ) from error
    recipients = public_recipients(data, thing=f"plans/{relative}")
    signers = reader.read(plan.authorization.allowed_signers, thing="allowed_signers").decode()
    for line in signers.splitlines():
        if line.split()[:1] == [plan.author] and any(one in line for one in recipients):
            raise MalformedInputError(
                f"plans/{relative}",
                expected="a custodian who does not run the study",
                found=f"the signing key of its author {plan.author}",
                next_step="ask somebody else for a public key",
            )


def _items_document(row: RowMaterial) -> dict[str, Any]:
    def listed(items: tuple[Item, ...]) -> list[dict[str, Any]]:
        return [
            {
                "id": item.id,
                "text": item.text,
                "topic": item.topic,
                "slice": item.slice,
                "keep_text": item.keep_text,
            }
            for item in items
        ]

    return {
        "schema": "eps-locked/frozen-items/1",
        "train": listed(row.train_items),
        "eval": listed(row.eval_items),
    }


def _written_document(row: RowMaterial, tokenizer: ChatTokenizer) -> dict[str, Any]:
    """Written answers as token ids, and what a fact row reads at its slots."""
    fact = row.file.fact
    return {
        "schema": "eps-locked/written/1",
        "behaviour": row.behaviour.name,
        "answers": {
            name: {
                "positive": list(tokenizer.encode(written.positive)),
                "negative": None
                if written.negative is None
                else list(tokenizer.encode(written.negative)),
            }
            for name, written in row.written.items()
        },
        "fact": None
        if fact is None
        else {
            "attribute": list(tokenizer.encode(fact.attribute)),
            "attribute_text": fact.attribute,
            "alternatives": list(fact.alternatives),
            "bridge": list(tokenizer.encode(fact.bridge)),
        },
    }


def _contexts_document(
    rendered: Mapping[str, Rendered], aliases: Mapping[str, str], tokenizer: ChatTokenizer
) -> dict[str, Any]:
    return {
        "schema": "eps-locked/frozen-contexts/1",
        "template": tokenizer.template_digest,
        "end_of_turn_id": tokenizer.end_of_turn_id,
        "contexts": {
            name: {
                **one.context.to_dict(),
                "rendered": one.identity,
                "alias_of": aliases.get(name),
                "prefix_tokens": len(one.prefix),
                "longest_prompt_tokens": len(one.prefix)
                + max(len(ids) for ids in one.suffixes.values()),
            }
            for name, one in rendered.items()
        },
    }
