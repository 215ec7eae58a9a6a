"""The page's sections about the run itself: what was changed, what was checked, what was spent."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from eps_locked.canonical import short
from eps_locked.domain.authorization import Amendment
from eps_locked.domain.clock import format_time
from eps_locked.domain.plan import MS_PER_HOUR
from eps_locked.lock.decisions import DECISION_PREFIX
from eps_locked.lock.signatures import AMENDMENT_NAMESPACE, AUTHORIZATION_NAMESPACE
from eps_locked.report.absent import listed
from eps_locked.report.evidence import RunEvidence
from eps_locked.report.html import Html, code, join, pairs, section, tag
from eps_locked.report.sheets import Row, Sheet, count, number, sheet_table, words

_SEEN = {
    "nothing_run": "nothing had been run",
    "run_unseen": "steps had run, but no cell had been measured",
    "seen": "measured cells lay in plain text: results count as seen",
}


# What a finding says, by the middle part of its flag.
_FINDINGS = {
    "base_saturated": "the base model already shows the behaviour of row “{}” where it trains",
    "base_unscored": "the base model could be scored in no train context of row “{}”",
    "judge_kappa": "the judge agrees with the people of labelled set “{}” less than the plan asks",
}


def publication_notice(evidence: RunEvidence) -> Html | None:
    """Said above everything else, where the numbers are not to be published."""
    if evidence.publishable:
        return None
    reasons = (
        ("plan", not evidence.manifest.publication),
        ("engine", any(s.body.engine.get("publishable") is not True for s in evidence.sessions)),
        ("judge", bool(evidence.stand_in_judges)),
        ("endpoint", bool(evidence.stand_in_endpoints)),
    )
    by = listed([name for name, found in reasons if found])
    return tag(
        "p",
        tag("b", "Not for publication"),
        f" by its {by}; see " if by else "; see ",
        tag("a", "Evidence", href="#verdict"),
        ".",
        class_="notice",
    )


def deviations(evidence: RunEvidence, decisions: Sheet) -> Html | None:
    """Amendments, findings that needed one, and phases that their own author authorized; None
    where there is nothing of it."""
    notes: list[Html] = []
    if evidence.amendments:
        notes.append(section("amendments", "Amendments", *map(_amendment, evidence.amendments)))
    if decisions.rows:
        notes.append(
            section(
                "decisions",
                "Findings that needed a decision",
                sheet_table(decisions, "Findings, and the amendment that decided to go on"),
            )
        )
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


def decided_words(evidence: RunEvidence, finding: str) -> str:
    """Who decided to go on with a finding, named without its prefix."""
    for one in evidence.findings:
        if one.finding == DECISION_PREFIX + finding and one.decided_by is not None:
            return f"going on was decided by amendment {one.decided_by}"
    return "nothing that was trained or measured later needed a decision on it"


def _decision_sheet(evidence: RunEvidence) -> Sheet:
    return Sheet(
        file="decisions.csv",
        what="Findings that needed a decision",
        columns=(
            words("finding", "words", wide=True),
            words("flag", "finding"),
            words("step", "step"),
            words("decided by amendment", "decided_by"),
        ),
        rows=tuple(
            {
                "words": _finding_words(one.finding),
                "finding": one.finding,
                "step": one.step,
                "phase": one.phase,
                "decided_by": one.decided_by,
            }
            for one in evidence.findings
        ),
    )


def _finding_words(flag: str) -> str:
    kind, _, about = flag.removeprefix(DECISION_PREFIX).partition(":")
    return _FINDINGS.get(kind, flag).format(about)


def verdict(evidence: RunEvidence, looks: str | None = None) -> Html:
    """What the audit found, in one look. ``looks``: at sealed cells, in a study that has some."""
    audited = evidence.audited
    n_things = sum(check.n_examined for check in audited.checks.values())
    if evidence.publishable:
        by = "plan, engine and judges" if evidence.has_judges else "plan and engine"
        publication: Html = tag("p", f"Fit for publication by its {by}.", class_="good")
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
                *([] if looks is None else [("looks", looks)]),
                ("complete", "yes" if audited.complete else "no"),
                ("publishable", "yes" if evidence.publishable else "no"),
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
    judges = evidence.stand_in_judges
    if judges:
        reasons.append(f"the judge {', '.join(judges)} says so of itself")
    if evidence.stand_in_endpoints:
        models = listed(evidence.stand_in_endpoints)
        reasons.append(f"the endpoint of {models} says so of itself")
    return reasons or ["a check failed"]


def this_run(evidence: RunEvidence, sheets: Mapping[str, Sheet]) -> Html:
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
            ]
        ),
        sheet_table(sheets["spending"], "Spent against the cap"),
        sheet_table(sheets["aborted"], "Aborted attempts, each redone later")
        if sheets["aborted"].rows
        else None,
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


def run_sheets(evidence: RunEvidence) -> dict[str, Sheet]:
    """The tables about the run itself."""
    return {
        "decisions": _decision_sheet(evidence),
        "spending": Sheet(
            file="spending.csv",
            what="Spent against the cap, by phase",
            columns=(
                words("phase", "phase"),
                count("steps", "n_steps"),
                number(evidence.hours_word, "hours", 4),
                number("authorized cap", "authorized_hours"),
                number("plan's budget", "budget_hours"),
                count("sessions", "n_sessions"),
                count("aborted attempts", "n_aborted"),
                words("authorized by", "authorized_by"),
            ),
            rows=tuple(_spent(evidence, phase) for phase in evidence.manifest.phases),
        ),
        "aborted": Sheet(
            file="aborted.csv",
            what="Aborted attempts",
            columns=(
                words("step", "step"),
                words("reason", "reason", wide=True),
                count("charged, ms", "compute_ms"),
            ),
            rows=tuple(
                {"step": body.step, "reason": body.reason, "compute_ms": body.compute_ms}
                for body in evidence.history.aborted
            ),
        ),
        "checks": Sheet(
            file="checks.csv",
            what="The auditor's numbered checks",
            columns=(
                words("check", "check"),
                words("claim", "title", wide=True),
                count("examined", "n_examined"),
                words("result", "result"),
            ),
            rows=tuple(
                {
                    "check": f"C{check.number}",
                    "title": check.title,
                    "n_examined": check.n_examined,
                    "n_failures": len(check.failures),
                    "result": "holds" if check.ok else "fails",
                }
                for check in evidence.audited.checks.values()
            ),
        ),
    }


def _spent(evidence: RunEvidence, phase: str) -> Row:
    history = evidence.history
    sessions = [s for s in evidence.sessions if s.body.phase == phase]
    signers = dict.fromkeys(
        s.authorization.signer + (" (self)" if s.body.self_authorized else "") for s in sessions
    )
    return {
        "phase": phase,
        "n_steps": len(history.terms.of_phase(phase)),
        "hours": history.spent_ms.get(phase, 0) / MS_PER_HOUR,
        "authorized_hours": sessions[-1].body.cap_ms / MS_PER_HOUR if sessions else None,
        "budget_hours": evidence.plan["phases"][phase]["gpu_hours"],
        "n_sessions": len(sessions),
        "n_aborted": sum(body.phase == phase for body in history.aborted),
        "authorized_by": ", ".join(signers),
    }


def checks(sheet: Sheet) -> Html:
    """The numbered checks, as ``check-evidence`` prints them."""
    return section(
        "checks",
        "Checks",
        tag("p", "Found by the auditor on the bytes this page was made from.", class_="small"),
        sheet_table(sheet, "The numbered checks"),
    )


def check_yourself(evidence: RunEvidence, unproved: Iterable[str] = ()) -> Html:
    """Commands for someone who trusts none of this. ``unproved``: what the study's own evidence
    leaves open, beside what no run can prove."""
    name = evidence.audited.name
    commands: list[tuple[str, str]] = [
        (f"just check-evidence {name}", "re-derive all of it; the head must be the one above"),
        (f"eps-locked show ledger {name}", "every entry, the chain verified while it prints"),
        (f"eps-locked show manifest {name}", "what was promised, and by which digests"),
    ]
    for result in evidence.results:
        output = evidence.history.done[result.step].outputs[result.output]
        recorded = output.files[result.file].digest
        commands += [
            (
                f"eps-locked show step {name} {shlex.quote(result.step)}",
                f"everything this {result.what} was made from",
            ),
            (f"b3sum {result.path}", f"must print {recorded.partition(':')[2]}"),
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
                    *unproved,
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


def source_line(evidence: RunEvidence, step: str, output: str) -> str:
    """Where the numbers come from: the step and the shortened digest of its output."""
    digest = evidence.history.done[step].outputs[output].digest
    return f"Step {step}, output {short(digest)}"
