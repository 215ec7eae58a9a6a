"""How each model was served, how fast it was, and what the adapters were trained on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.canonical import short
from eps_locked.report.absent import listed
from eps_locked.report.battery.evidence import BatteryEvidence
from eps_locked.report.battery.view import Entry, View, model_column, number_words
from eps_locked.report.html import Child, Html, code, join, pairs, section, tag
from eps_locked.report.sheets import (
    NOTHING,
    Column,
    Row,
    Sheet,
    count,
    figure,
    number,
    sheet_table,
    words,
)
from eps_locked.report.verdict_marks import of_column

_DIGEST = re.compile(r"blake3:[0-9a-f]{64}")
_SPREADS = ("tokens_per_second", "first_token_seconds", "seconds")
# A template that a server tells in full can be long; its beginning is enough to see which it is.
_LONGEST = 400


def served_sheets(view: View) -> dict[str, Sheet]:
    """What each model is, what its endpoint said of itself, how fast it was."""
    return {
        "served": Sheet(
            file="served.csv",
            what="How each model was served",
            columns=(
                Column(head="model", keys=("model", "base"), show=_with_base),
                words("route", "route"),
                words("family", "family", aside=True),
                words("quantisation", "quantisation"),
                count("context, tokens", "context_length"),
                words("sampling", "sampling", aside=True),
                _with_digests("chat template", "template_digest"),
                words("server", "server", wide=True),
                words("answered as", "answered_as", wide=True),
                words("for publication", "publishable", aside=True),
            ),
            rows=tuple(map(_served, view.models)),
        ),
        "said": Sheet(
            file="said.csv",
            what="What each endpoint said of itself",
            columns=(
                words("name", "name"),
                _with_digests("what it says", "text"),
            ),
            rows=tuple(row for model in view.models for row in _said(model)),
        ),
        "speed": Sheet(
            file="speed.csv",
            what="How fast each model answered",
            columns=(
                model_column(),
                of_column("timed", "n_timed", "n_requests"),
                _spread("tokens per second", "tokens_per_second", 1),
                _spread("first token, s", "first_token_seconds", 3),
                _spread("whole request, s", "seconds", 3),
                count("tokens at most", "max_tokens"),
            ),
            rows=tuple(_speed(model) for model in view.models if model["speed"] is not None),
        ),
    }


def served_section(view: View, sheets: Mapping[str, Sheet]) -> Html:
    """As the plan says and as each endpoint said itself."""
    prompts = dict.fromkeys(model["system_prompt"] for model in view.models)
    return section(
        "served",
        "How each model was served",
        tag(
            "p",
            "Quantisation, context length, chat template and server move rates by themselves. "
            "Quantisation and context are the plan's words; the template and the server are what "
            "the endpoint said. Which weights answered behind a service nobody here can check.",
        ),
        _stand_ins(view),
        sheet_table(sheets["served"], join(view.promised, " How each model was served")),
        pairs([("system prompt", prompt or "none") for prompt in prompts]),
        *_by_model(view, sheets["said"]),
    )


def _by_model(view: View, sheet: Sheet) -> Iterator[Html]:
    for model in view.models:
        shown = sheet.where(model=model["model"])
        if shown.rows:
            yield tag(
                "details",
                tag("summary", f"What the endpoint of {model['model']} said of itself"),
                sheet_table(shown, join(view.promised, f" {model['model']}: said of itself")),
            )


def _stand_ins(view: View) -> Html | None:
    names = [str(one["model"]) for one in view.models if not one["publishable"]]
    if not names:
        return None
    who = "every model" if len(names) == len(view.models) else listed(names)
    return tag(
        "p",
        tag("b", "Not for publication: "),
        f"rates of {who}; a stand-in serves or judges, or the plan says so.",
        class_="notice",
    )


def speed_section(view: View, sheet: Sheet) -> Html | None:
    """None for a plan that times nothing."""
    if not sheet.rows:
        return None
    return section(
        "speed",
        "Speed",
        tag(
            "p",
            "Medians over requests sent one after another, in brackets p10 and p90. A speed is of "
            "one machine and one hour: it is compared with nothing. Tokens per second are of the "
            "whole request, the wait for the first token included.",
        ),
        sheet_table(sheet, join(view.promised, " Tokens per second and seconds")),
    )


# -- trainings


def training_sheet(evidence: BatteryEvidence) -> Sheet:
    """One row a training, from the record that its step wrote."""
    return Sheet(
        file="trainings.csv",
        what="What each adapter was trained on",
        columns=(
            words("training", "training"),
            words("serves", "serves"),
            count("seed", "seed"),
            count("rows", "n_rows"),
            count("steps", "stop_step"),
            count("rows seen", "n_rows_seen"),
            number("first loss", "first_loss", 4),
            number("last loss", "last_loss", 4),
            Column(head="adapter", keys=(), show=lambda row: code(short(str(row["adapter"])))),
        ),
        rows=tuple(_training(evidence, record) for record in evidence.trainings),
    )


def trainings_section(view: View, sheet: Sheet) -> Html | None:
    """None where nothing was trained."""
    if not sheet.rows:
        return None
    return section(
        "trainings",
        "Trainings",
        tag(
            "p",
            "Adapters of the plan's own base model, trained in the run on rows that are neither "
            "items nor near copies of any. What they do was put there.",
        ),
        sheet_table(sheet, join(view.promised, " What each adapter was trained on")),
    )


def _training(evidence: BatteryEvidence, record: Mapping[str, Any]) -> Row:
    name, losses = record["training"], record["losses"]
    plan = {one["name"]: one for one in evidence.study["trainings"]}
    serves = [str(one["name"]) for one in evidence.study["models"] if one.get("training") == name]
    return {
        "training": name,
        "serves": listed(serves) or None,
        "seed": plan[name]["seed"],
        "n_rows": record["n_rows"],
        "stop_step": record["stop_step"],
        "n_rows_seen": record["n_rows_seen"],
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "rows": record["rows"],
        "adapter": record["adapter"],
    }


# -- rows and columns


def _served(model: Entry) -> Row:
    sampling = model["sampling"]
    return {
        **{
            key: model[key]
            for key in ("model", "base", "route", "family", "quantisation", "context_length")
        },
        "sampling": ", ".join(
            f"{key.replace('_', ' ')} {number_words(value)}" for key, value in sampling.items()
        ),
        "template_digest": _cut(model["template_digest"]),
        "server": _cut(model["server"]),
        "answered_as": ", ".join(_cut(one) or "nothing" for one in model["answered_as"]) or None,
        "endpoint_changed": ", ".join(model["endpoint_changed"]) or None,
        "publishable": "yes" if model["publishable"] else "no",
    }


def _with_base(row: Row) -> Child:
    base = f"against {row['base']}" if row["base"] else "no base"
    return join(row["model"], " ", tag("small", base))


def _said(model: Entry) -> Iterator[Row]:
    endpoint = model["endpoint"]
    for key in ("kind", "model", "server"):
        if key in endpoint:
            yield {"model": model["model"], "name": key, "text": _cut(endpoint[key])}
    if "publishable" in endpoint:
        answer = "yes" if endpoint["publishable"] is True else "no"
        yield {"model": model["model"], "name": "for publication", "text": answer}
    for name, text in sorted(endpoint.get("said", {}).items()):
        yield {"model": model["model"], "name": _cut(name), "text": _cut(text)}


def _speed(model: Entry) -> Row:
    speed = model["speed"]
    row: dict[str, Any] = {
        "model": model["model"],
        "n_requests": speed["n_requests"],
        "n_timed": speed["n_timed"],
        "max_tokens": speed["max_tokens"],
    }
    for name in _SPREADS:
        found = speed[name] or {}
        row |= {
            name: found.get("median"),
            f"{name}_p10": found.get("p10"),
            f"{name}_p90": found.get("p90"),
            f"{name}_n": found.get("n"),
        }
    return row


def _spread(head: str, key: str, digits: int) -> Column:
    low, high = f"{key}_p10", f"{key}_p90"

    def show(row: Row) -> Child:
        if row[key] is None:
            return NOTHING
        ends = f"[{figure(row[low], digits)}, {figure(row[high], digits)}]"
        return join(figure(row[key], digits), " ", tag("small", ends))

    return Column(head=head, keys=(key, low, high), show=show, kind="num")


def _with_digests(head: str, key: str) -> Column:
    """Whatever a server says, with the digests in it shortened as everywhere; whole in the CSV."""
    return Column(
        head=head,
        keys=(),
        show=lambda row: _DIGEST.sub(lambda found: short(found[0]), str(row[key] or NOTHING)),
        kind="wide",
    )


def _cut(text: str) -> str:
    """In one line, and no longer than anybody reads."""
    one_line = " ".join(str(text).split())
    return one_line if len(one_line) <= _LONGEST else f"{one_line[:_LONGEST]}..."
