"""What every study that asks a judge shares."""

from __future__ import annotations

from eps_locked.domain.judging import Rubric
from eps_locked.lock.strict_yaml import parse_yaml

__all__ = ["DECISION", "STAND_INS", "VERDICTS_FILE", "read_rubric"]

# A flag that begins so waits for an amendment that names it; see docs/lock.md.
DECISION = "decision_needed"
VERDICTS_FILE = "verdicts.json"
# Judges that stand in where there is no key and no network: what they say is not for publication.
STAND_INS = ("prototype", "scripted")


def read_rubric(data: bytes) -> Rubric:
    return Rubric.from_dict(parse_yaml(data, thing="frozen rubric"), "frozen rubric")
