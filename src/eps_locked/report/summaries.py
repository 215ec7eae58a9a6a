"""What ``eps-locked show`` says, as documents: a manifest, a context, a step, a ledger entry.

Made from verified parts (frozen files read against their digests, a history that accepted every
entry), so they hold for runs that are still going as well. Nothing here is evidence of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from eps_locked.canonical import decode
from eps_locked.domain.clock import format_time
from eps_locked.domain.ledger import Entry, FileRecord, StepBody
from eps_locked.domain.plan import MS_PER_HOUR
from eps_locked.domain.steps import Step
from eps_locked.errors import MalformedInputError
from eps_locked.lock.history import History
from eps_locked.lock.signatures import public_principals
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.lock.workspace import FrozenManifest

# The exposure of an arm that has none.
_PLAIN = "plain"


def manifest_summary(frozen: FrozenManifest) -> dict[str, Any]:
    """A manifest for people. Reads, and so verifies, every frozen file.

    ``split`` is None for a study that sets nothing apart.
    """
    manifest = frozen.manifest
    contents = {name: frozen.read(name) for name in manifest.files}
    plan = parse_yaml(contents["frozen/plan.yaml"], thing="frozen/plan.yaml")
    split = None
    if "frozen/split.json" in contents:
        split = _json(frozen, "frozen/split.json")
    steps = frozen.steps().values()
    alone = f"up to {manifest.auto_approve_ms / MS_PER_HOUR:g} hours a phase"
    return {
        "name": manifest.name,
        "title": manifest.title,
        "digest": frozen.digest,
        "study": manifest.study,
        "author": manifest.author,
        "frozen_at": format_time(manifest.frozen_at),
        "phases": {p: sum(step.phase == p for step in steps) for p in manifest.phases},
        "counts": dict(manifest.summary),
        "seeds": plan["seeds"],
        "analyses": plan["analyses"],
        "publication": manifest.publication,
        "signers": list(
            public_principals(contents["frozen/allowed_signers"], thing="frozen/allowed_signers")
        ),
        "self_authorization": f"the author may authorize {alone}"
        if manifest.self_authorization
        else "the author may not authorize",
        "split": split,
        "model": {
            "name": plan["base_model"]["name"],
            "licence": plan["base_model"]["licence"],
            "files": _listed(manifest.model_files),
        },
        "code": manifest.code,
        "environment": manifest.environment,
        "files": _listed(manifest.files),
    }


def rows_of(frozen: FrozenManifest) -> list[str]:
    """The rows of an ``eps`` study, in the plan's order."""
    plan = _plan_of(frozen, "eps", "show battery")
    return [behaviour["name"] for behaviour in plan["eps"]["behaviours"]]


def context_summary(
    frozen: FrozenManifest, context_id: str, row: str | None = None
) -> dict[str, Any]:
    """A frozen context, its prompts' shared prefix, and one whole prompt's remaining token ids.

    A row asks its own questions, and fills some slots with its own contexts; without ``row`` it is
    the plan's first.
    """
    rows = rows_of(frozen)
    row = rows[0] if row is None else row
    if row not in rows:
        raise unknown("row", row, rows)
    contexts = _json(frozen, f"frozen/rows/{row}/contexts.json")["contexts"]
    if context_id not in contexts:
        raise unknown("context", context_id, contexts)
    prompts = _json(frozen, f"frozen/rows/{row}/prompts/{context_id}.json")
    items = _json(frozen, f"frozen/rows/{row}/items.json")
    texts = {item["id"]: item["text"] for pool in ("train", "eval") for item in items[pool]}
    item, token_ids = next(iter(prompts["suffixes"].items()))
    plan = parse_yaml(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    section = plan[plan["study"]]
    own = next(one.get("train") for one in section["behaviours"] if one["name"] == row)
    slots = section["slots"] if own is None else {**section["slots"], "train": own}
    return {
        **contexts[context_id],
        "row": row,
        "rows": rows,
        "roles": [
            role
            for role in ("train", "eval", "held_out", "negative_panel")
            if context_id in slots[role]
        ],
        "prefix": prompts["prefix"],
        "example": {"item": item, "text": texts[item], "token_ids": token_ids},
    }


def battery_summary(
    frozen: FrozenManifest, battery: str, exposure: str | None = None
) -> dict[str, Any]:
    """A frozen battery of a ``drift`` study, and one whole prompt of it under an exposure."""
    plan = _plan_of(frozen, "drift", "show context")
    section = plan["drift"]
    names = [one["name"] for one in section["batteries"]]
    if battery not in names:
        raise unknown("battery", battery, names)
    exposures = [_PLAIN, *(one["name"] for one in section["exposures"])]
    exposure = _PLAIN if exposure is None else exposure
    if exposure not in exposures:
        raise unknown("exposure", exposure, exposures)
    document = _json(frozen, f"frozen/batteries/{battery}.json")
    prompts = _json(frozen, f"frozen/prompts/{battery}/{exposure}.json")
    first = document["probes"][0]
    return {
        **document,
        "exposure": exposure,
        "exposures": exposures,
        "prefix": prompts["prefix"],
        "example": {
            "item": first["id"],
            "text": first["text"],
            "token_ids": prompts["suffixes"][first["id"]],
        },
    }


def _plan_of(frozen: FrozenManifest, study: str, instead: str) -> dict[str, Any]:
    found = frozen.manifest.study
    if found != study:
        raise MalformedInputError(
            f"manifest {frozen.manifest.name}",
            expected=f"one of study {study}",
            found=found,
            next_step=f"eps-locked {instead} --help",
        )
    plan: dict[str, Any] = parse_yaml(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    return plan


def step_row(step: Step, body: StepBody | None) -> dict[str, Any]:
    """A step in short; ``open`` until it is finished."""
    return {
        "step": step.id,
        "phase": step.phase,
        "kind": step.kind,
        "seed": step.seed,
        "status": "open" if body is None else body.status,
        "flags": [] if body is None else list(body.flags),
        "compute_ms": None if body is None else body.compute_ms,
    }


def step_summary(step: Step, history: History) -> dict[str, Any]:
    """A step, everything it reads and wrote by digest; digests are None until they exist."""
    body = history.done.get(step.id)
    return {
        **step_row(step, body),
        "finished": body is not None,
        "params": dict(step.params),
        "estimate_ms": step.estimate_ms,
        "aborted": sum(one.step == step.id for one in history.aborted),
        "started": None if body is None else body.started,
        "ended": None if body is None else body.ended,
        "engine": None if body is None else body.engine,
        "inputs": {
            key: {"reference": reference, "digest": None if body is None else body.inputs[key]}
            for key, reference in step.inputs.items()
        },
        "outputs": {key: {"digest": None, "files": {}} for key in step.outputs}
        if body is None
        else {key: artifact.to_dict() for key, artifact in body.outputs.items()},
    }


def ledger_row(entry: Entry) -> dict[str, Any]:
    """One entry in short: what it is about, and how it went."""
    body = entry.body
    about = {
        "open": f"{body.get('phase')}"
        + (", self-authorized" if body.get("self_authorized") else ""),
        "step": f"{body.get('step')}",
        "aborted": f"{body.get('step')}: {body.get('reason')}",
        "amendment": f"number {body.get('number')}",
        "close": f"{body.get('phase')}: {body.get('n_steps')} steps",
        "submission": f"number {body.get('number')}: {body.get('metric')} by {body.get('author')}",
        "look": f"number {body.get('number')} at submission {body.get('submission')}"
        + (", informed" if body.get("informed") else ""),
        "score": f"look {body.get('look')}" + _because(body.get("reason")),
    }
    return {
        "seq": entry.seq,
        "at": entry.at,
        "kind": entry.kind,
        "about": about[entry.kind],
        "status": body.get("status"),
        "flags": list(body.get("flags", ())),
        "compute_ms": body.get("compute_ms"),
    }


def _because(reason: object) -> str:
    return f": {reason}" if reason else ""


def unknown(
    what: str, found: str, known: Iterable[str], next_step: str | None = None
) -> MalformedInputError:
    """The error for an id that is not there; it lists the nearest ones that are."""
    names = list(known)
    near = difflib.get_close_matches(found, names, n=5, cutoff=0.4) or names[:5]
    return MalformedInputError(
        what, expected=f"one of {', '.join(near)}", found=found, next_step=next_step
    )


def _json(frozen: FrozenManifest, relative: str) -> dict[str, Any]:
    value: dict[str, Any] = decode(frozen.read(relative), thing=relative)
    return value


def _listed(records: Mapping[str, FileRecord]) -> list[dict[str, Any]]:
    return [{"name": name, **record.to_dict()} for name, record in records.items()]
