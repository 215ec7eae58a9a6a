"""What a study could and could not have seen: the statement that stands before every result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eps_locked.report.absent import listed
from eps_locked.report.drift.view import KINDS, VERDICTS, View, battery_blocks, detectable_words
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import (
    Column,
    Row,
    Sheet,
    count,
    per_cent,
    sheet_table,
    words,
)
from eps_locked.report.verdict_marks import span_column, span_words, whole

Effect = Mapping[str, Any]


def resolution_sheet(view: View) -> Sheet:
    """One row for each battery and kind of comparison."""
    scale = view.scale
    return Sheet(
        file="resolution.csv",
        what="What each battery could have seen, by kind of comparison",
        columns=(
            words("arms differ in", "group"),
            count("comparisons", "n_comparisons"),
            span_column("stems", "n_stems", whole),
            span_column(f"detectable, {scale.short}", "minimum_detectable", scale.change),
            span_column("power at that", "power", lambda value: per_cent(value, 0)),
            span_column(f"for few stems, {scale.short}", "minimum_detectable_few", scale.change),
            span_column(f"bound, {scale.short}", "bound", scale.change),
            Column(
                head=f"bound within ±{view.margin:g}",
                keys=("n_within", "n_bounds"),
                show=lambda row: f"{row['n_within']} of {row['n_bounds']}",
                kind="num",
            ),
        ),
        rows=tuple(
            _row(view, battery, kind, effects)
            for battery in view.batteries
            for kind, effects in _by_kind(view, battery).items()
        ),
    )


def resolution_section(view: View, sheet: Sheet) -> Html:
    """First of all: the smallest drift each battery could have shown, and what nobody may claim."""
    blocks = battery_blocks(view.batteries, lambda name: _battery(view, sheet, name))
    return section(
        "resolution",
        "What this study could have seen",
        *blocks,
        tag("p", _reading(view), class_="small") if sheet.rows else None,
        tag("h3", "What nobody may claim from it"),
        tag(
            "ul",
            [
                tag("li", tag("b", f"{what}: "), because)
                for what, because in impossible_claims(view)
            ],
            class_="limits",
        ),
    )


def impossible_claims(view: View) -> Iterator[tuple[str, str]]:
    """Classes of claims that the design leaves no room for, each with its reason."""
    yield from _by_battery(view)
    yield from _by_design(view)
    yield from _always(view)


def _reading(view: View) -> str:
    frozen = " and was frozen before the first answer" if view.frozen else ""
    return (
        f"{detectable_words(view)} Power at that: what such a drift has with stems as few as "
        "these; for few stems: the drift that does have the full power. Bound: the widest drift "
        f"that the {view.equivalence_level} interval leaves open, in either direction; the margin "
        f"is ±{view.margin:g} {view.scale.words}{frozen}. Where all stems agree there is no "
        "standard error, and the rule of three on stems bounds the drift instead."
    )


def _battery(view: View, sheet: Sheet, name: str) -> Iterator[Child]:
    yield tag("p", *_statement(view, name), class_="lead")
    shown = sheet.where(battery=name)
    if shown.rows:
        yield sheet_table(shown, join(view.label("drift"), f" Resolution of {name}"))


def _statement(view: View, name: str) -> Iterator[Child]:
    battery, scale = view.battery(name), view.scale
    effects = [effect for _, found, effect in view.effects() if found == name]
    n_stems, n_probes = battery["n_stems"], battery["n_probes"]
    yield f"{n_stems} stem{_s(n_stems)} in {n_probes} wording{_s(n_probes)}"
    yield f", {_replies(view, name)}. "
    if not effects:
        yield "No arm was compared with a reference here: this battery shows no drift at all."
        return
    sizes = [effect["minimum_detectable"] for effect in effects]
    if any(size is not None for size in sizes):
        yield tag(
            "b",
            f"Smallest drift it would have shown: {span_words(sizes, scale.change)} {scale.words}",
        )
        few = [effect["minimum_detectable_few"] for effect in effects]
        yield f" ({span_words(few, scale.change)} counting that the stems are few)"
        yield ", by comparison; smaller ones would have been missed more often. "
    else:
        yield tag("b", "Its resolution is undefined")
        yield ": in no comparison do stems differ. "
    counts = Counter(effect["verdict"] for effect in effects)
    said = [f"{counts[key]} {found}" for key, (_, found) in VERDICTS.items() if counts[key]]
    yield f"Of {len(effects)} comparison{_s(len(effects))}: {listed(said)}. "
    yield _coverage(view, name, min(effect["n_stems"] for effect in effects))


def _replies(view: View, name: str) -> str:
    """How often an arm was asked, from the counts of the arms themselves."""
    shown = [arm["batteries"][name] for arm in view.document["arms"] if name in arm["batteries"]]
    each = [one["n_replies"] / one["n_probes"] for one in shown if one["n_probes"]]
    times = span_words(each, lambda value: f"{value:g}")
    return f"{times} repl{'y' if times == '1' else 'ies'} to each from each of {len(shown)} arms"


def _coverage(view: View, battery: str, n_stems: int) -> str:
    """Whether the intervals hold the truth as often as they say, with so many stems."""
    found = _simulated(view, battery, n_stems)
    if found["coverage"] is None:
        return f"How often a {view.level} interval holds the truth here was not simulated."
    n, studies = found["coverage_n_stems"], found["coverage_n_experiments"]
    where = "with so many stems" if n == n_stems else f"with {n} stems, the nearest number"
    return (
        f"In {studies} simulated studies {where}, the {view.level} interval held the truth in "
        f"{per_cent(found['coverage'])} of them."
    )


def _s(n: int) -> str:
    return "" if n == 1 else "s"


def _by_kind(view: View, battery: str) -> dict[str, list[Effect]]:
    found: dict[str, list[Effect]] = {}
    for one, name, effect in view.effects():
        if name == battery:
            found.setdefault(one["kind"], []).append(effect)
    return found


def _row(view: View, battery: str, kind: str, effects: Sequence[Effect]) -> Row:
    bounds = [effect["equivalence_bound"] for effect in effects]
    stems = [effect["n_stems"] for effect in effects]
    return {
        "battery": battery,
        "kind": kind,
        "group": KINDS[kind],
        "n_comparisons": len(effects),
        **_ends("n_stems", stems),
        **_ends("minimum_detectable", [effect["minimum_detectable"] for effect in effects]),
        **_ends("power", [effect["power_at_minimum"] for effect in effects]),
        **_ends("minimum_detectable_few", [e["minimum_detectable_few"] for e in effects]),
        **_ends("bound", bounds),
        "margin": view.margin,
        "n_within": sum(effect["within_margin"] for effect in effects),
        "n_bounds": sum(bound is not None for bound in bounds),
        **_simulated(view, battery, min(stems)),
    }


def _ends(key: str, values: Sequence[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    return {f"{key}_low": min(known, default=None), f"{key}_high": max(known, default=None)}


def _simulated(view: View, battery: str, n_stems: int) -> dict[str, Any]:
    """The simulation with as many rewordings of a stem and with this number of stems, or with the
    nearest number that was simulated."""
    about = view.battery(battery)
    found = [
        one
        for one in (view.document["power"] or {}).get("coverage") or []
        if one["n_rewordings"] * about["n_stems"] == about["n_probes"]
    ]
    nearest: Mapping[str, Any] = min(
        found, key=lambda one: abs(one["n_stems"] - n_stems), default={}
    )
    return {
        "coverage": nearest.get("coverage"),
        "coverage_n_stems": nearest.get("n_stems"),
        "coverage_n_experiments": nearest.get("n_experiments"),
        "null_rejection": nearest.get("null_rejection"),
    }


def _by_battery(view: View) -> Iterator[tuple[str, str]]:
    """What several batteries share is said once, with how many comparisons it is true of."""
    few: list[str] = []
    coarse: list[str] = []
    for name in view.batteries:
        effects = [effect for _, found, effect in view.effects() if found == name]
        n_few = sum(effect["verdict"] == "too_few_stems" for effect in effects)
        n_coarse = sum((effect["minimum_detectable_few"] or 0) > view.margin for effect in effects)
        few += [f"{name} ({n_few} of {len(effects)} comparisons)"] if n_few else []
        coarse += [f"{name} ({n_coarse} of {len(effects)} comparisons)"] if n_coarse else []
    missing = [f"{one['arm']} in {one['battery']}" for one in view.document["not_measured"]]
    if missing:
        yield (
            "Anything about what was not measured",
            f"too few replies have a class: {listed(missing)}",
        )
    if few:
        yield (
            "A drift, or none, from too few stems",
            f"{listed(few)}; the settings ask for {view.settings['minimum_stems']} stems",
        )
    if coarse:
        missed = round(100 * (1 - view.settings["power"]), 6)
        yield (
            f"That a drift of {view.margin:g} {view.scale.words} would have shown",
            f"{listed(coarse)} would have missed it more often than in {missed:g} studies of 100; "
            "there only the bound says what is ruled out",
        )


def _by_design(view: View) -> Iterator[tuple[str, str]]:
    document, settings = view.document, view.settings
    arms = document["arms"]
    if len(view.dispositions) < 2:
        yield (
            "A total over dispositions",
            f"{len(view.dispositions)} disposition batter"
            f"{'y was' if len(view.dispositions) == 1 else 'ies were'} asked",
        )
    trained = [arm for arm in arms if arm["topic"] is not None]
    if trained and not document["training_noise"]:
        yield (
            "A drift of a kind of training",
            "no pair of seeds was trained, so a drift may be an accident of one training run",
        )
    if not document["doses"]:
        yield ("A dose-response", "no topic was trained at three doses or more")
    if len({arm["reasoning"] for arm in arms}) == 1:
        yield (
            "The same under other reasoning",
            f"every arm was asked under one reasoning setting ({arms[0]['reasoning']})",
        )
    if not document["instances"]:
        yield (
            "What another server would show",
            "nothing was asked twice on two server instances",
        )
    if not settings["null_tests"]:
        yield (
            "What measuring twice does by itself",
            "replies were not sampled twice, so there is no null test and no split of the noise",
        )
    if not document["judging"]["twice"]:
        yield ("How much of the noise is the classifier's", "no reply was classified twice")
    if not document["judging"]["checker"]:
        yield (
            "That another judge would see the same",
            "no judge of another family checked the classifier",
        )
    if document["readouts"] is None:
        yield ("What moved inside the model", "nothing was read from its activations")
    if document["awareness"] is None:
        yield (
            "That the model did not know the test",
            "nobody rated the probes for looking like one",
        )


def _always(view: View) -> Iterator[tuple[str, str]]:
    names = listed(view.batteries)
    yield (
        "Other dispositions and other formats",
        f"a drift that these questions do not touch cannot show in {names}",
    )
    yield (
        "A drift that is hidden on purpose",
        "a model that tells the test from use can answer for the test",
    )
