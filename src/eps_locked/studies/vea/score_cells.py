"""What stands in a score's cell of somebody's table: a number, or why there is none. Pure."""

from __future__ import annotations

import math
from typing import Final, cast

from eps_locked.domain.reward import REWARD_STATUSES, RewardStatus

__all__ = ["SCORE_FORM", "read_score"]

_SCORED: Final = "scored"
_REASONS: Final = tuple(one for one in REWARD_STATUSES if one != _SCORED)
SCORE_FORM: Final = f"a number, nan, nothing, or one of {', '.join(_REASONS)}"
_LONGEST: Final = 60


def read_score(cell: object) -> tuple[float | None, RewardStatus]:
    """(score, status) of one cell; the score is there exactly if the status is ``scored``.

    An empty cell is ``absent``, NaN and infinities are ``not_finite``, and a status may be written
    out where it is known. Raises ValueError, in words, for anything else: a decimal comma, a true.
    """
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None, "absent"
    if isinstance(cell, str) and cell.strip() in _REASONS:
        return None, cast(RewardStatus, cell.strip())
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        raise ValueError(_refusal(cell))
    try:
        # Python would also take 1_000, in which others see no number.
        number = float(cell.replace("_", "x") if isinstance(cell, str) else cell)
    except OverflowError:
        number = math.inf
    except ValueError:
        raise ValueError(_refusal(cell)) from None
    return (number, "scored") if math.isfinite(number) else (None, "not_finite")


def _refusal(cell: object) -> str:
    return f"expected a score, found {repr(cell)[:_LONGEST]}"
