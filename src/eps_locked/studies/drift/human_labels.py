"""People's labels on a run's own replies: a sheet to fill in, and what it says of the classifier.

Outside the lock and always exploratory: the labels are given after the replies. Whoever labels
sees question and reply and the battery's classes; not the arm, not the classifier's label.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eps_locked.canonical import digest_bytes, digest_value, encode
from eps_locked.errors import MalformedInputError
from eps_locked.stats.agreement import agreement
from eps_locked.studies.drift.derive import FrozenBattery
from eps_locked.studies.drift.records import AskRecord

__all__ = ["COLUMNS", "LabelledReply", "compared", "label_sheet", "labelled_replies"]

COLUMNS = ("key", "battery", "classes", "question", "reply", "label")
_KEY_DIGITS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledReply:
    """A reply with the classifier's first label. ``key`` names it without telling the arm."""

    key: str
    battery: str
    stem: str
    classes: tuple[str, ...]
    question: str
    reply: str
    label: str


def labelled_replies(
    records: Iterable[AskRecord], batteries: Mapping[str, FrozenBattery], manifest: str
) -> tuple[tuple[LabelledReply, ...], int]:
    """Every classified reply whose text is kept, and how many are kept as excerpts alone."""
    found, n_withheld = [], 0
    for record in records:
        battery, labels = batteries[record.battery], record.classes.labels()
        for reply in record.replies:
            if reply.key not in labels:
                continue
            probe = battery.probe(reply.probe)
            if not probe.keep_text:
                n_withheld += 1
                continue
            named = digest_value([manifest, record.arm, record.battery, reply.key])
            found.append(
                LabelledReply(
                    key=named.removeprefix("blake3:")[:_KEY_DIGITS],
                    battery=record.battery,
                    stem=probe.stem,
                    classes=battery.labels,
                    question=probe.text,
                    reply=reply.reply,
                    label=labels[reply.key],
                )
            )
    return tuple(found), n_withheld


def label_sheet(replies: Sequence[LabelledReply], n_per_battery: int, seed: int) -> bytes:
    """CSV with an empty column ``label``: so many replies of each battery, drawn by the seed.

    Raises MalformedInputError if a battery has fewer.
    """
    if not replies:
        raise MalformedInputError(
            "replies to label",
            expected="classified replies whose texts are kept",
            found="none",
            next_step="run the phase that asks first: eps-locked status",
        )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for battery in dict.fromkeys(one.battery for one in replies):
        mine = [one for one in replies if one.battery == battery]
        if len(mine) < n_per_battery:
            raise MalformedInputError(
                "--n", expected=f"at most the {len(mine)} replies of {battery}", found=n_per_battery
            )
        mine.sort(key=lambda one: digest_bytes(encode([seed, one.key])))
        for one in mine[:n_per_battery]:
            writer.writerow((one.key, battery, " ".join(one.classes), one.question, one.reply, ""))
    return text.getvalue().encode("utf-8")


def compared(
    data: bytes, replies: Sequence[LabelledReply], thing: str, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """People's labels against the classifier's, by battery: agreement, kappa, figures by class.

    ``data`` is a filled sheet; rows without a label are counted and take no part. Intervals
    resample stems. Raises MalformedInputError for a row that names no reply of this run, a reply
    labelled twice, or a class that its battery does not have.
    """
    by_key = {one.key: one for one in replies}
    given: dict[str, list[tuple[LabelledReply, str]]] = {}
    empty: Counter[str] = Counter()
    for one, label in _read(data, by_key, thing):
        if label:
            given.setdefault(one.battery, []).append((one, label))
        else:
            empty[one.battery] += 1
    found = []
    for battery, pairs in given.items():
        result = agreement(
            [label for _, label in pairs],
            [one.label for one, _ in pairs],
            pairs[0][0].classes,
            clusters=[one.stem for one, _ in pairs],
            rng=rng,
        )
        found.append({"battery": battery, "n_without_label": empty[battery], **result.to_dict()})
    return found


def _read(
    data: bytes, by_key: Mapping[str, LabelledReply], thing: str
) -> Iterator[tuple[LabelledReply, str]]:
    try:
        rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig")), strict=True)
        missing = sorted({"key", "label"} - set(rows.fieldnames or ()))
        lines = [] if missing else list(rows)
    except (UnicodeDecodeError, csv.Error) as error:
        raise MalformedInputError(
            thing, expected="the sheet as CSV in UTF-8", found=str(error)
        ) from error
    if missing:
        raise MalformedInputError(
            thing,
            expected="columns key and label",
            found=", ".join(rows.fieldnames or ()) or "none",
        )
    seen: set[str] = set()
    for number, row in enumerate(lines, start=2):
        key, label = (row["key"] or "").strip(), (row["label"] or "").strip()
        if key not in by_key or key in seen:
            raise MalformedInputError(
                f"{thing}, line {number}: key",
                expected="a reply of this run, once",
                found=f"{key!r}{' again' if key in seen else ''}",
                next_step="label the sheet of this very run: eps-locked drift label-sheet",
            )
        seen.add(key)
        one = by_key[key]
        if label and label not in one.classes:
            raise MalformedInputError(
                f"{thing}, line {number}: label",
                expected=f"a class of {one.battery}: {', '.join(one.classes)}",
                found=label,
            )
        yield one, label
