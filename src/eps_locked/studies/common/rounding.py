"""Floats as they go into a document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from eps_locked.errors import StatsInputError

__all__ = ["rounded"]


def rounded(value: Any) -> Any:
    """The same value with every float at 10 significant digits.

    Sums in another order differ in the last digits between processors; a document must not. Raises
    StatsInputError for a float that is not finite.
    """
    if isinstance(value, Mapping):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise StatsInputError("document", expected="finite numbers", found=value)
        # + 0.0 turns a negative zero into the usual one.
        return float(f"{value:.10g}") + 0.0
    return value
