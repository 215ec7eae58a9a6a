"""The page's sections about the run itself: what was changed, what was checked, what was spent."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from eps_locked.canonical import short
from eps_locked.domain.authorization import Amendment
from eps_locked.domain.clock import format_time
from eps_locked.domain.plan import MS_PER_HOUR
from eps_locked.lock.signatures import AMENDMENT_NAMESPACE, AUTHORIZATION_NAMESPACE
from eps_locked.report.evidence import RunEvidence, TensorArtifact
from eps_locked.report.html import Child, Html, code, join, pairs, section, table, tag

_SEEN = {
    "nothing_run": "nothing had been run",
    "run_unseen": "steps had run, but no cell had been measured",
    "seen": "measured cells lay in plain text: results count as seen",
}


def deviations(evidence: RunEvidence) -> Html | None:
    """Amendments, and phases that their own author authorized; None where there is neither."""
    notes: list[Html] = []
    if evidence.amendments:
        notes.append(section("amendments", "Amendments", *map(_amendment, evidence.amendments)))
    own = [s for s in evidence.sessions if s.body.self_authorized]
    if own:
        phases = ", ".join(dict.fromkeys(session.body.phase for session in own))
        signers = ", ".join(dict.fromkeys(session.authorization.signer for session in own))
        notes.append(
            tag(
                "p",
                tag("b", "Self-authorized: "),
                f"{phases}. The plan's author {signers} signed the leave to run; "
                "nobody else did. The plan allows this below its cap.",
                class_="notice",
            )
        )
    return join(*notes) if notes else None


def _amendment(one: Amendment) -> Html:
    return tag(
        "article",
        tag("p", one.reason, class_="reason"),
        tag("ul", [tag("li", change) for change in one.changes]) if one.changes else None,
        pairs(
            [
                ("number", str(one.number)),
                ("when", format_time(one.at)),
                ("signed by", one.signer),
                ("seen by then", _SEEN[one.seen]),
                ("bound anew", ", ".join(one.rebind) if one.rebind else "nothing"),
            ]
        ),
        class_="amendment",
    )


def verdict(evidence: RunEvidence) -> Html:
    """What the audit found, in one look."""
    audited = evidence.audited
    n_things = sum(check.n_examined for check in audited.checks.values())
    if audited.publishable:
        publication: Html = tag("p", "Fit for publication by its plan and engine.", class_="good")
    else:
        publication = tag(
            "p",
            tag("b", "Not for publication: "),
            "; ".join(_why_not_publishable(evidence)) + ".",
            class_="notice",
        )
    return section(
        "verdict",
        "Evidence",
        tag(
            "p",
            tag("b", f"All {len(audited.checks)} checks hold. "),
            f"{n_things} things were examined; every phase is complete.",
            class_="good",
        ),
        publication,
        pairs(
            [
                ("ledger head", code(audited.ledger_head or "")),
                ("ledger entries", str(audited.n_entries)),
                ("manifest", code(evidence.frozen.digest)),
                ("complete", "yes" if audited.complete else "no"),
                ("publishable", "yes" if audited.publishable else "no"),
            ]
        ),
    )


def _why_not_publishable(evidence: RunEvidence) -> list[str]:
    reasons = []
    if not evidence.manifest.publication:
        reasons.append("the plan says so (publication: false)")
    stand_ins = {
        str(session.body.engine.get("name"))
        for session in evidence.sessions
        if session.body.engine.get("publishable") is not True
    }
    if stand_ins:
        reasons.append(f"the engine {', '.join(sorted(stand_ins))} says so of itself")
    return reasons or ["a check failed"]


def this_run(evidence: RunEvidence) -> Html:
    """Model, engine, design, cost."""
    plan, manifest = evidence.plan, evidence.manifest
    model, source = plan["base_model"], plan["base_model"]["source"]
    revision = f" {source['revision']}" if source.get("revision") else ""
    counts = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in manifest.summary.items()
    )
    return section(
        "run",
        "This run",
        pairs(
            [
                (
                    "base model",
                    f"{model['name']} ({model['family']}; licence {model['licence']}), "
                    f"{source['kind']} {source['where']}{revision}",
                ),
                *(("engine", _engine(engine)) for engine in _engines(evidence)),
                ("seeds", ", ".join(map(str, plan["seeds"]))),
                ("design", counts),
                ("frozen", f"{format_time(manifest.frozen_at)} by {manifest.author}"),
                ("set apart", _quarantine(evidence.split)),
            ]
        ),
        _spending(evidence),
        _aborted(evidence),
    )


def _engines(evidence: RunEvidence) -> list[Mapping[str, Any]]:
    """The distinct engine identities, in the order they first served."""
    found: list[Mapping[str, Any]] = []
    for session in evidence.sessions:
        if session.body.engine not in found:
            found.append(session.body.engine)
    return found


def _engine(engine: Mapping[str, Any]) -> Html:
    flags = ", ".join(f"{key} {value}" for key, value in dict(engine.get("flags", {})).items())
    quantisation = engine.get("quantisation")
    parts = [
        f"{engine.get('name')} {engine.get('version')} on {engine.get('device')}",
        str(engine.get("dtype")),
        f"quantisation {quantisation}",
        f"instance {engine.get('instance_id')}",
        flags,
    ]
    return join(", ".join(part for part in parts if part))


def _quarantine(split: Mapping[str, Any]) -> str:
    fates = list(split["cells"].values())
    text = f"{fates.count('held_out')} held-out and {fates.count('quarantined')} quarantined cells"
    if split["seal"] == "none":
        return (
            f"{text}, by name only (seal: none). Nobody was kept from reading them, and this page "
            "shows them."
        )
    return f"{text}, sealed by {split['seal']}"


def _spending(evidence: RunEvidence) -> Html:
    rows: list[list[Child]] = []
    history = evidence.history
    for phase in evidence.manifest.phases:
        sessions = [s for s in evidence.sessions if s.body.phase == phase]
        signers = dict.fromkeys(
            s.authorization.signer + (" (self)" if s.body.self_authorized else "") for s in sessions
        )
        rows.append(
            [
                phase,
                len(history.terms.of_phase(phase)),
                f"{history.spent_ms.get(phase, 0) / MS_PER_HOUR:.4f}",
                f"{sessions[-1].body.cap_ms / MS_PER_HOUR:g}" if sessions else "none",
                f"{evidence.plan['phases'][phase]['gpu_hours']:g}",
                len(sessions),
                sum(body.phase == phase for body in history.aborted),
                ", ".join(signers),
            ]
        )
    head = (
        "phase",
        "steps",
        evidence.hours_word,
        "authorized cap",
        "plan's budget",
        "sessions",
        "aborted attempts",
        "authorized by",
    )
    return table(head, rows, caption="Spent against the cap", numeric=range(1, 7))


def _aborted(evidence: RunEvidence) -> Html | None:
    if not evidence.history.aborted:
        return None
    rows: list[list[Child]] = [
        [body.step, body.reason, body.compute_ms] for body in evidence.history.aborted
    ]
    return table(
        ("step", "reason", "charged, ms"),
        rows,
        caption="Aborted attempts, each redone later",
        numeric=(2,),
        wide=(1,),
    )


def checks(evidence: RunEvidence) -> Html:
    """The numbered checks, as ``check-evidence`` prints them."""
    rows = [
        [f"C{check.number}", check.title, check.n_examined, "holds" if check.ok else "fails"]
        for check in evidence.audited.checks.values()
    ]
    return section(
        "checks",
        "Checks",
        tag("p", "Found by the auditor on the bytes this page was made from.", class_="small"),
        table(("check", "claim", "examined", "result"), rows, numeric=(2,), wide=(1,)),
    )


def check_yourself(evidence: RunEvidence) -> Html:
    """Commands for someone who trusts none of this."""
    name = evidence.audited.name
    commands: list[tuple[str, str]] = [
        (f"just check-evidence {name}", "re-derive all of it; the head must be the one above"),
        (f"eps-locked show ledger {name}", "every entry, the chain verified while it prints"),
        (f"eps-locked show manifest {name}", "what was promised, and by which digests"),
    ]
    for tensor in evidence.tensors:
        output = evidence.history.done[tensor.step].outputs["tensor"]
        recorded = output.files["tensor.json"].digest
        commands += [
            (
                f"eps-locked show step {name} {shlex.quote(tensor.step)}",
                "everything this tensor was made from",
            ),
            (f"b3sum {tensor.path}", f"must print {recorded.partition(':')[2]}"),
        ]
    if evidence.sessions:
        session = evidence.sessions[0]
        commands.append(
            (
                _signature_command(name, session.document, session.authorization.signer),
                "with OpenSSH alone: who authorized; likewise the other authorizations",
            )
        )
    if evidence.amendments:
        commands.append(
            (
                _signature_command(name, "A-0001", evidence.amendments[0].signer),
                "the amendments",
            )
        )
    return section(
        "yourself",
        "Check it yourself",
        tag("p", "From the folder that holds manifests/ and runs/:"),
        tag("dl", [join(tag("dt", code(c)), tag("dd", text)) for c, text in commands], class_="do"),
        tag("h3", "What none of this proves"),
        tag(
            "ul",
            [
                tag("li", text)
                for text in (
                    "A chain shows order, not honesty: whoever can write the ledger can rebuild "
                    "it. Compare the head with a copy that was published elsewhere.",
                    "That the weights are what their publisher says; only that they are the "
                    "frozen bytes.",
                    "That nobody read a cell early: what lies in plain text can be read.",
                )
            ],
        ),
    )


def _signature_command(name: str, document: str, signer: str) -> str:
    amendment = document.startswith("A-")
    namespace = AMENDMENT_NAMESPACE if amendment else AUTHORIZATION_NAMESPACE
    folder = f"runs/{name}/{'amendments' if amendment else 'authorizations'}/{document}"
    return (
        f"ssh-keygen -Y verify -f manifests/{name}/frozen/allowed_signers -I {shlex.quote(signer)} "
        f"-n {namespace} -s {folder}/document.json.sig < {folder}/document.json"
    )


def label(evidence: RunEvidence, analysis: str) -> Html:
    """``confirmatory`` for what the frozen plan promised, ``exploratory`` for all else."""
    promised = evidence.is_confirmatory(analysis)
    word = "confirmatory" if promised else "exploratory"
    return tag("span", word, class_=f"label {word}")


def source_line(tensor: TensorArtifact, evidence: RunEvidence) -> str:
    """Where the numbers come from: the step and the shortened digest of its output."""
    output = evidence.history.done[tensor.step].outputs["tensor"]
    return f"Step {tensor.step}, output {short(output.digest)}"
