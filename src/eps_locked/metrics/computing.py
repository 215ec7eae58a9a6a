"""From a loaded metric to its predictor document: vectors once, cells twice, every number checked.

Runs in the child process. Whatever the author's code does wrong becomes a ``PluginFailure`` (it
raised) or a MalformedInputError (it gave something that is no finite number), naming the cell.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eps_locked.errors import MalformedInputError
from eps_locked.metrics.interface import BaseModel, Materials, Metric

__all__ = ["PREDICTOR_SCHEMA", "PluginFailure", "describe", "predict"]

PREDICTOR_SCHEMA = "eps-locked/predictor/1"
_TAIL_LINES = 12
T = TypeVar("T")


class PluginFailure(Exception):
    """The plug-in raised. ``tail`` is the end of its traceback, one line each."""

    def __init__(self, where: str, tail: tuple[str, ...]) -> None:
        super().__init__(where)
        self.where, self.tail = where, tail


def describe(metric: Metric) -> dict[str, Any]:
    """What a metric says of itself, as it stands at the head of its predictor document."""
    return {
        "metric": metric.id,
        "title": metric.title,
        "author": metric.author,
        "track": metric.track,
        "polarity": metric.polarity,
        "description": metric.description,
    }


def predict(metric: Metric, materials: Materials, model: BaseModel) -> dict[str, Any]:
    """The predictor document: one value for every cell, in the order of the cells' names.

    With two or more behaviours each cell also carries ``blind``, the value under the mean vector.
    """
    vectors = {name: _vector(metric, name, materials, model) for name in materials.behaviours}
    _require_one_shape(vectors)
    mean = np.mean(list(vectors.values()), axis=0) if len(vectors) > 1 else None
    cells = []
    for cell in sorted(materials.cells):
        behaviour, train, evaluated = cell
        where = "/".join(cell)
        row: dict[str, Any] = {
            "behaviour": behaviour,
            "train": train,
            "eval": evaluated,
            "value": _score(metric, vectors[behaviour], cell, where, materials, model),
        }
        if mean is not None:
            row["blind"] = _score(metric, mean, cell, f"{where} (blind)", materials, model)
        cells.append(row)
    return {"schema": PREDICTOR_SCHEMA, **describe(metric), "cells": cells}


def guarded(where: str, call: Callable[[], T]) -> T:
    """What the author's code returns; anything it raises as PluginFailure."""
    try:
        return call()
    except MalformedInputError:
        raise
    except (Exception, SystemExit) as error:
        lines = "".join(traceback.format_exception(error)).splitlines()
        raise PluginFailure(where, tuple(lines[-_TAIL_LINES:])) from error


def _vector(
    metric: Metric, behaviour: str, materials: Materials, model: BaseModel
) -> NDArray[np.float64]:
    where = f"behaviour_vector({behaviour})"
    value = guarded(
        where,
        lambda: metric.behaviour_vector(materials.behaviours[behaviour], model, materials),
    )
    try:
        vector = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise MalformedInputError(
            where, expected="an array of numbers", found=f"{type(value).__name__} ({error})"
        ) from error
    if vector.size == 0 or not np.isfinite(vector).all():
        raise MalformedInputError(
            where,
            expected="at least one number, all finite",
            found=f"{vector.size} numbers, {int((~np.isfinite(vector)).sum())} not finite",
        )
    # A metric that keeps and changes its vector would score its cells by different ones.
    vector.setflags(write=False)
    return vector


def _require_one_shape(vectors: dict[str, NDArray[np.float64]]) -> None:
    if len({vector.shape for vector in vectors.values()}) > 1:
        raise MalformedInputError(
            "behaviour_vector",
            expected="one shape for all behaviours, since their mean is scored too",
            found=", ".join(f"{name} {vector.shape}" for name, vector in vectors.items()),
        )


def _score(
    metric: Metric,
    vector: NDArray[np.float64],
    cell: tuple[str, str, str],
    where: str,
    materials: Materials,
    model: BaseModel,
) -> float:
    behaviour, train, evaluated = cell
    value = guarded(
        f"score({where})",
        lambda: metric.score(
            vector,
            materials.contexts[behaviour, train],
            materials.contexts[behaviour, evaluated],
            model,
            materials.training[behaviour, train],
            materials,
        ),
    )
    return _number(value, f"score({where})")


def _number(value: Any, where: str) -> float:
    """A Python, numpy or one-element tensor number as a float; nothing else, and no NaN."""
    shape = getattr(value, "shape", ())
    if isinstance(value, str | bytes | bool | np.bool_ | complex) or tuple(shape) != ():
        found = f"{type(value).__name__} of shape {tuple(shape)}" if shape else repr(value)[:60]
        raise MalformedInputError(where, expected="one number", found=found)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise MalformedInputError(
            where, expected="one number", found=f"{type(value).__name__} ({error})"
        ) from error
    if not math.isfinite(number):
        raise MalformedInputError(
            where,
            expected="a finite number; every cell must have one",
            found=repr(number),
        )
    return number
