"""How the parts of a ``drift`` section hang together, and how it fits the rest of its plan.

Needs no material. The first thing that is wrong is refused by its field, with what was expected and
found: an instrument with a hole in its design must not be frozen.
"""

from __future__ import annotations

from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.studies.common.judging import require_fair_judges
from eps_locked.studies.drift.check_arms import check_arms, require_known
from eps_locked.studies.drift.doses import dose_key, n_harmful
from eps_locked.studies.drift.plan import BASE, NO_REASONING, PLAIN, DriftPlan
from eps_locked.studies.drift.steplist import phases_of

__all__ = ["ANALYSES", "check_section"]

# What a plan can promise to compute, and hence what is confirmatory.
ANALYSES = ("drift", "doses", "nulls", "readouts", "awareness")


def check_section(plan: Plan, section: DriftPlan, path: str = "plan.drift") -> None:
    """Raises MalformedInputError or RefusedError at the first field that does not fit."""
    _check_names(section, path)
    _check_batteries(section, path)
    _check_reasoning(section, path)
    _check_trainings(plan, section, path)
    check_arms(section, path)
    _check_judging(plan, section, path)
    _check_calibrations(section, path)
    _check_readouts(section, path)
    _check_awareness(plan, section, path)
    _check_phases(plan, section)
    _check_analyses(plan, section)


def _check_names(section: DriftPlan, path: str) -> None:
    settings = () if section.reasoning is None else section.reasoning.settings
    for key, parts, reserved in (
        ("batteries", section.batteries, ()),
        ("reasoning.settings", settings, (NO_REASONING,)),
        ("topics", section.topics, ()),
        ("trainings", section.trainings, (BASE,)),
        ("exposures", section.exposures, (PLAIN,)),
        ("arms", section.arms, ()),
        ("judges", section.judges, ()),
        ("calibrations", section.calibrations, ()),
    ):
        names = [part.name for part in parts]
        for number, name in enumerate(names):
            if name in names[:number] or name in reserved:
                raise MalformedInputError(
                    f"{path}.{key}[{number}].name",
                    expected="a name of its own"
                    + "".join(f" (not {one}, which is taken)" for one in reserved),
                    found=name,
                )
    for key, some in (("batteries", section.dispositions), ("arms", section.arms)):
        if not some:
            raise MalformedInputError(
                f"{path}.{key}",
                expected="at least one of role disposition" if key == "batteries" else "an arm",
                found="none",
            )


def _check_batteries(section: DriftPlan, path: str) -> None:
    minimum = section.analysis.minimum_stems
    for number, battery in enumerate(section.batteries):
        where = f"{path}.batteries[{number}]"
        if battery.role == "disposition" and battery.n_stems < minimum:
            raise MalformedInputError(
                f"{where}.n_stems",
                expected=f"at least {minimum} (analysis.minimum_stems)",
                found=battery.n_stems,
                next_step="ask more stems: rewordings of one stem are no further evidence",
            )
        both = sorted(set(battery.aligned) & set(battery.no_stance))
        if both:
            raise MalformedInputError(
                f"{where}.no_stance", expected="classes that are not aligned", found=both[0]
            )
        if (battery.graded_rubric is not None) and section.judging.grader is None:
            raise MalformedInputError(
                f"{where}.graded_rubric",
                expected="null where judging.grader is null",
                found=battery.graded_rubric,
                next_step="name a grader, or leave the battery ungraded",
            )


def _check_reasoning(section: DriftPlan, path: str) -> None:
    if section.reasoning is None:
        return
    if not section.reasoning.settings:
        raise MalformedInputError(
            f"{path}.reasoning.settings",
            expected="at least one setting",
            found="none",
            next_step="write reasoning: null for a template without a reasoning block",
        )
    for number, setting in enumerate(section.reasoning.settings):
        if setting.max_tokens is not None and setting.max_tokens <= section.max_new_tokens:
            raise MalformedInputError(
                f"{path}.reasoning.settings[{number}].max_tokens",
                expected=f"more than the {section.max_new_tokens} of decoding.max_new_tokens: "
                "reasoning and reply share it",
                found=setting.max_tokens,
            )


def _check_trainings(plan: Plan, section: DriftPlan, path: str) -> None:
    for number, training in enumerate(section.trainings):
        where = f"{path}.trainings[{number}]"
        require_known(training.topic, section.topics, f"{where}.topic", "a topic")
        _require_whole(
            training.dose_percent, section.topic(training.topic).n_rows, f"{where}.dose_percent"
        )
        if training.seed not in plan.seeds:
            raise MalformedInputError(
                f"{where}.seed",
                expected=f"one of the plan's seeds: {', '.join(map(str, plan.seeds))}",
                found=training.seed,
            )
        same = [
            other.name
            for other in section.trainings[:number]
            if (other.topic, other.dose_percent, other.seed)
            == (training.topic, training.dose_percent, training.seed)
        ]
        if same:
            raise MalformedInputError(
                where,
                expected="another topic, dose or seed than every other training",
                found=f"those of {same[0]}",
            )
    seeds = {training.seed for training in section.trainings}
    if section.trainings and len(seeds) < plan.minimum_seeds:
        raise MalformedInputError(
            f"{path}.trainings",
            expected=f"trainings with at least {plan.minimum_seeds} seeds (minimum_seeds)",
            found=len(seeds),
            next_step="train a dose a second time with another seed: without such a pair the "
            "noise of training is unknown",
        )
    used = [one.topic for one in section.trainings] + [one.topic for one in section.exposures]
    for number, topic in enumerate(section.topics):
        if topic.name not in used:
            raise MalformedInputError(
                f"{path}.topics[{number}]",
                expected="a topic that something is trained on or exposed to",
                found=topic.name,
            )
    for number, exposure in enumerate(section.exposures):
        where = f"{path}.exposures[{number}]"
        require_known(exposure.topic, section.topics, f"{where}.topic", "a topic")
        n_rows = section.topic(exposure.topic).n_rows
        if exposure.n_exchanges > n_rows:
            raise MalformedInputError(
                f"{where}.n_exchanges",
                expected=f"at most the {n_rows} rows of topic {exposure.topic}",
                found=exposure.n_exchanges,
            )
        _require_whole(exposure.dose_percent, exposure.n_exchanges, f"{where}.dose_percent")


def _require_whole(dose: float, n_rows: int, path: str) -> None:
    if n_harmful(dose, n_rows) is None:
        raise MalformedInputError(
            path,
            expected=f"a whole number of {n_rows} rows",
            found=f"{dose_key(dose)} percent = {n_rows * dose / 100:g} rows",
        )


def _check_judging(plan: Plan, section: DriftPlan, path: str) -> None:
    rules = section.judging
    roles = {"classifier": rules.classifier, "grader": rules.grader, "checker": rules.checker}
    for key, name in roles.items():
        if name is not None:
            require_known(name, section.judges, f"{path}.judging.{key}", "a judge")
            _require_cold(section, name, f"{path}.judging.{key}")
    require_fair_judges(plan, section.judges, f"{path}.judges")
    graded = any(battery.graded_rubric is not None for battery in section.batteries)
    for key, expected, wrong, found in (
        (
            "grader",
            "null where no battery has a graded_rubric",
            rules.grader is not None and not graded,
            rules.grader,
        ),
        (
            "n_graded_samples",
            f"1 to {section.n_samples} (samples) with a grader, else 0",
            not (1 <= rules.n_graded_samples <= section.n_samples)
            if rules.grader is not None
            else rules.n_graded_samples != 0,
            rules.n_graded_samples,
        ),
        (
            "checker_share",
            "above 0 with a checker, else 0",
            (rules.checker is not None) != (rules.checker_share > 0),
            rules.checker_share,
        ),
    ):
        if wrong:
            raise MalformedInputError(f"{path}.judging.{key}", expected=expected, found=found)
    if rules.checker is None:
        return
    checker = section.judge(rules.checker)
    for key in ("classifier", "grader"):
        checked = roles[key]
        if checked is not None and _same_family(section, checked, checker.name):
            raise RefusedError(
                f"{path}.judging.checker: {checker.name}",
                problem=f"is of the family of the {key} it would check",
                expected=f"a family other than {checker.family}",
                found=f"{checked} of {section.judge(checked).family}",
                next_step="name a checker of another family: judges of one share their blind spots",
            )


def _require_cold(section: DriftPlan, name: str, path: str) -> None:
    """A judge that can be asked at temperature 0 is."""
    judge = section.judge(name)
    if judge.kind == "gateway" and judge.temperature != 0:
        raise MalformedInputError(
            f"{path}: {name}",
            expected="temperature: 0 for a judge of kind gateway",
            found="none" if judge.temperature is None else judge.temperature,
            next_step="write it into the judge: nothing sent is the service's own choice",
        )


def _same_family(section: DriftPlan, one: str, other: str) -> bool:
    families = {section.judge(name).family.casefold().strip() for name in (one, other)}
    return len(families) == 1


def _check_calibrations(section: DriftPlan, path: str) -> None:
    for number, rules in enumerate(section.calibrations):
        where = f"{path}.calibrations[{number}]"
        require_known(rules.judge, section.judges, f"{where}.judge", "a judge")
        require_known(rules.battery, section.batteries, f"{where}.battery", "a battery")


def _check_readouts(section: DriftPlan, path: str) -> None:
    rules = section.readouts
    if rules is None:
        return
    for key in ("full", "reference"):
        name = getattr(rules, key)
        require_known(name, section.trainings, f"{path}.readouts.{key}", "a training")
    full, reference = section.training(rules.full), section.training(rules.reference)
    highest = section.doses_of(full.topic)[-1]
    for key, expected, wrong, found in (
        (
            "reference",
            f"a training of topic {full.topic}, as full is",
            full.topic != reference.topic,
            f"one of {reference.topic}",
        ),
        (
            "reference",
            "a training of dose 0",
            reference.dose_percent != 0,
            f"{dose_key(reference.dose_percent)} percent",
        ),
        (
            "full",
            f"a training of the topic's highest dose, {dose_key(highest)} percent, above 0",
            full.dose_percent != highest or highest == 0,
            f"{dose_key(full.dose_percent)} percent",
        ),
    ):
        if wrong:
            raise MalformedInputError(f"{path}.readouts.{key}", expected=expected, found=found)


def _check_awareness(plan: Plan, section: DriftPlan, path: str) -> None:
    rules = section.awareness
    if rules is None:
        return
    where = f"{path}.awareness.judges"
    for number, name in enumerate(rules.judges):
        require_known(name, section.judges, f"{where}[{number}]", "a judge")
        _require_cold(section, name, f"{where}[{number}]")
    if not 1 <= len(rules.judges) <= 2 or len(set(rules.judges)) != len(rules.judges):
        raise MalformedInputError(
            where, expected="one judge, or two distinct ones", found=list(rules.judges)
        )
    families = {section.judge(name).family.casefold().strip() for name in rules.judges}
    if plan.publication and len(families) < 2:
        raise MalformedInputError(
            where,
            expected="two judges of different families for publication",
            found=", ".join(sorted(families)),
            next_step="name a second judge of another family, or say publication: false",
        )


def _check_phases(plan: Plan, section: DriftPlan) -> None:
    phases = phases_of(section)
    if tuple(plan.phases) != phases:
        raise MalformedInputError(
            "plan.phases",
            expected=" then ".join(phases),
            found=" then ".join(plan.phases),
            next_step="P0 comes before the data, P1 trains (if anything is), P2 asks, P3 computes",
        )


def _check_analyses(plan: Plan, section: DriftPlan) -> None:
    doses = [section.doses_of(topic.name) for topic in section.topics]
    needs = {
        "drift": ("an arm with a reference", any(arm.reference for arm in section.arms)),
        "doses": ("a topic trained at two doses", any(len(one) > 1 for one in doses)),
        "nulls": ("two samples", section.n_samples > 1),
        "readouts": ("drift.readouts", section.readouts is not None),
        "awareness": ("drift.awareness", section.awareness is not None),
    }
    for analysis in plan.analyses:
        if analysis not in ANALYSES:
            raise MalformedInputError(
                "plan.analyses",
                expected=" or ".join(ANALYSES),
                found=analysis,
                next_step="an analysis that is not implemented cannot be promised",
            )
        part, is_there = needs[analysis]
        if not is_there:
            raise MalformedInputError(
                f"plan.analyses: {analysis}",
                expected=f"{part} in the plan",
                found="none",
                next_step="a promised analysis needs its numbers frozen with it",
            )
