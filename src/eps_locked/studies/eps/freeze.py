"""Freezing an ``eps`` plan: draw items, render contexts, draw the quarantine, list every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import digest_value
from eps_locked.domain.model import ChatTokenizer, TokenIds
from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.lock.freeze import FrozenStudy, SourceReader
from eps_locked.lock.seal import public_recipients
from eps_locked.studies.eps.baselines.elicitation import ElicitationTexts, elicitation_documents
from eps_locked.studies.eps.material import (
    BehaviourFile,
    Context,
    Item,
    demonstration_questions,
    draw_items,
    read_contexts,
    read_items,
    refuse_overlap,
)
from eps_locked.studies.eps.plan import EpsPlan, MarkerBehaviour, Slots
from eps_locked.studies.eps.split import draw_split
from eps_locked.studies.eps.steplist import PHASES, list_steps

# What a plan can promise to compute, and hence what is confirmatory.
ANALYSES = ("tensor", "scores", "final_test")
# Asked of every context to compare contexts as token ids; never asked of a model.
PROBE_QUESTIONS = ("Why?", "7 apples, or none at all")


@dataclass(frozen=True, kw_only=True, slots=True)
class Material:
    """Everything a plan names, read and checked."""

    contexts: Mapping[str, Context]
    train_items: tuple[Item, ...]
    eval_items: tuple[Item, ...]
    behaviours: Mapping[str, BehaviourFile]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """One context under the model's own chat template, for a list of items.

    ``prefix`` is what all prompts share from the start, ``suffixes`` the rest by item id.
    ``probes`` are the probe questions' token ids: two contexts that render those alike are one
    context, whatever their authors called them.
    """

    context: Context
    probes: tuple[TokenIds, ...]
    prefix: TokenIds
    suffixes: Mapping[str, TokenIds]

    @property
    def identity(self) -> str:
        return digest_value([list(ids) for ids in self.probes])

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "eps-locked/prompts/1",
            "context": self.context.id,
            "probes": [list(ids) for ids in self.probes],
            "prefix": list(self.prefix),
            "suffixes": {item: list(ids) for item, ids in self.suffixes.items()},
        }


def freeze_eps(plan: Plan, reader: SourceReader, tokenizer: ChatTokenizer) -> FrozenStudy:
    """Everything an ``eps`` manifest holds beyond the common part.

    Raises MalformedInputError or RefusedError naming the field, file or context at fault.
    """
    section = EpsPlan.from_section(plan.study_section)
    _check_phases(plan, section)
    material = read_material(section, reader)
    _read_recipients(plan, section, reader)
    for number, behaviour in enumerate(section.behaviours):
        check_marker(behaviour, tokenizer, f"plan.eps.behaviours[{number}].marker")
    rendered = render_all(section, material, tokenizer)
    aliases = check_identities(section.slots, rendered)
    split = draw_split(section)
    steps = list_steps(plan, section)
    documents: dict[str, Any] = {
        "items.json": _items_document(material),
        "contexts.json": _contexts_document(rendered, aliases, tokenizer),
        "split.json": split,
        **{f"prompts/{name}.json": one.to_dict() for name, one in rendered.items()},
        **_elicitation(section, material, tokenizer),
    }
    n_cells = sum(len(step.outputs) for step in steps if step.kind == "cells")
    return FrozenStudy(
        documents=documents,
        steps=steps,
        summary={
            "adapters": sum(1 for step in steps if step.kind == "adapter"),
            "cells": n_cells,
            "contexts": len(rendered),
            "train_items": len(material.train_items),
            "eval_items": len(material.eval_items),
            "steps": len(steps),
            "held_out_cells": sum(1 for fate in split["cells"].values() if fate == "held_out"),
            "quarantined_cells": sum(
                1 for fate in split["cells"].values() if fate == "quarantined"
            ),
        },
    )


def read_material(section: EpsPlan, reader: SourceReader) -> Material:
    """Contexts, items and behaviour files, with every overlap between them refused."""
    contexts = contexts_by_id(section, reader)
    train_pool = read_items(
        reader.read_yaml(section.train_items_file, thing="train_items"), section.train_items_file
    )
    eval_pool = read_items(
        reader.read_yaml(section.eval_items_file, thing="eval_items"), section.eval_items_file
    )
    behaviours = behaviour_files(section, reader)
    demonstrations = [q for c in contexts.values() for q in demonstration_questions(c)]
    refuse_overlap(
        {
            section.train_items_file: [item.text for item in train_pool],
            section.eval_items_file: [item.text for item in eval_pool],
            "demonstrations": demonstrations,
            "elicitation": [q for file in behaviours for q in file.questions],
        }
    )
    for behaviour in section.behaviours:
        _refuse_marker_in_items(behaviour, (*train_pool, *eval_pool))
    seed = section.item_seed
    return Material(
        contexts=contexts,
        train_items=draw_items(train_pool, section.n_train_items, seed, "plan.eps.items.n_train"),
        eval_items=draw_items(eval_pool, section.n_eval_items, seed, "plan.eps.items.n_eval"),
        behaviours={file.name: file for file in behaviours},
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


def render_all(
    section: EpsPlan, material: Material, tokenizer: ChatTokenizer
) -> dict[str, Rendered]:
    """Every context of the plan, with the items it will be asked."""
    slots = section.slots
    rendered = {}
    for name in dict.fromkeys((*slots.eval, *slots.train, *slots.negative_panel)):
        if name not in material.contexts:
            raise MalformedInputError(
                f"plan.eps.slots: {name}",
                expected="a context of the plan's context files",
                found="none of that id",
                next_step=f"known: {', '.join(sorted(material.contexts))}",
            )
        items: list[Item] = []
        if name in slots.eval:
            items += material.eval_items
        if name in slots.train or name in slots.negative_panel:
            items += material.train_items
        elif section.baselines is not None:
            items += material.train_items[: section.baselines.n_items]
        rendered[name] = render(material.contexts[name], items, tokenizer)
    return rendered


def _elicitation(
    section: EpsPlan, material: Material, tokenizer: ChatTokenizer
) -> dict[str, dict[str, Any]]:
    """The prompts of the behaviours' directions, where the plan computes baselines."""
    if section.baselines is None:
        return {}
    texts = {name: elicitation_texts(file) for name, file in material.behaviours.items()}
    return elicitation_documents(section.baselines.persona, texts, tokenizer)


def elicitation_texts(file: BehaviourFile) -> ElicitationTexts:
    """What a behaviour's direction is drawn from."""
    return ElicitationTexts(
        instruction_pairs=file.instruction_pairs, questions=file.questions_extract
    )


def render(context: Context, items: Sequence[Item], tokenizer: ChatTokenizer) -> Rendered:
    """A context's prompts as token ids, split at their longest common prefix."""
    prompts = {item.id: tokenizer.render(context.ask(item.text)) for item in items}
    n_shared = len(_common_prefix(list(prompts.values())))
    # At least one token must remain to be read, or a shared prefix could be a whole prompt.
    n_shared = min(n_shared, min(len(ids) for ids in prompts.values()) - 1)
    first = next(iter(prompts.values()))
    return Rendered(
        context=context,
        probes=tuple(tokenizer.render(context.ask(question)) for question in PROBE_QUESTIONS),
        prefix=first[:n_shared],
        suffixes={item: ids[n_shared:] for item, ids in prompts.items()},
    )


def _common_prefix(rows: Sequence[TokenIds]) -> TokenIds:
    first, last = min(rows), max(rows)
    for index, token in enumerate(first):
        if token != last[index]:
            return first[:index]
    return first


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
    phases = tuple(name for name in PHASES if name != "P3" or section.baselines is not None)
    if tuple(plan.phases) != phases:
        raise MalformedInputError(
            "plan.phases",
            expected=" then ".join(phases),
            found=" then ".join(plan.phases),
            next_step="P3 computes the baselines: both eps.baselines and P3, or neither",
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


def contexts_by_id(section: EpsPlan, reader: SourceReader) -> dict[str, Context]:
    contexts: dict[str, Context] = {}
    for relative in section.context_files:
        for context in read_contexts(reader.read_yaml(relative, thing="contexts"), relative):
            if context.id in contexts:
                raise MalformedInputError(
                    f"{relative}: {context.id}",
                    problem="is defined twice",
                    next_step="rename or remove one of the two",
                )
            contexts[context.id] = context
    return contexts


def behaviour_files(section: EpsPlan, reader: SourceReader) -> list[BehaviourFile]:
    found = []
    for behaviour in section.behaviours:
        file = BehaviourFile.from_dict(
            reader.read_yaml(behaviour.file, thing="behaviour"), behaviour.file
        )
        for field, expected, value in (
            ("name", behaviour.name, file.name),
            ("marker", behaviour.marker_text, file.marker),
        ):
            if expected != value:
                raise MalformedInputError(
                    f"{behaviour.file}: {field}", expected=repr(expected), found=repr(value)
                )
        found.append(file)
    return found


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


def _refuse_marker_in_items(behaviour: MarkerBehaviour, items: Sequence[Item]) -> None:
    for item in items:
        if behaviour.marker_text.strip() in item.text:
            raise MalformedInputError(
                f"item {item.text!r}",
                problem="contains the marker",
                next_step="reword it: a question must not show the behaviour",
            )


def _items_document(material: Material) -> dict[str, Any]:
    def listed(items: tuple[Item, ...]) -> list[dict[str, str]]:
        return [{"id": item.id, "text": item.text, "topic": item.topic} for item in items]

    return {
        "schema": "eps-locked/frozen-items/1",
        "train": listed(material.train_items),
        "eval": listed(material.eval_items),
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
