"""How fast a model answered: medians with the spread of the requests, one after another.

A speed is of one machine and one hour: it stands in the table and is compared with nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eps_locked.studies.battery.records import SpeedRecord

__all__ = ["speed_entry"]


def speed_entry(record: SpeedRecord | None) -> dict[str, Any] | None:
    """None where nothing was timed. Tokens per second are of the whole request, from sending to the
    last token; what comes before the first token is in them."""
    if record is None:
        return None
    timed = [row for row in record.rows if row.is_timed and row.seconds]
    rates = [
        row.n_completion_tokens / row.seconds
        for row in timed
        if row.n_completion_tokens and row.seconds
    ]
    return {
        "n_requests": len(record.rows),
        "n_timed": len(timed),
        "max_tokens": record.request.get("max_tokens"),
        "tokens_per_second": _spread(rates),
        "first_token_seconds": _spread(
            [row.first_token_seconds for row in timed if row.first_token_seconds is not None]
        ),
        "seconds": _spread([row.seconds for row in timed if row.seconds is not None]),
    }


def _spread(values: Sequence[float]) -> dict[str, float | int] | None:
    """Median, tenth and ninetieth percentile of ``n`` requests; None without any."""
    if not values:
        return None
    low, median, high = np.quantile(values, [0.1, 0.5, 0.9])
    return {"n": len(values), "median": float(median), "p10": float(low), "p90": float(high)}
