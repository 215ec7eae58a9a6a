"""What may come in: arrays of finite numbers of the right shape; everything else is refused."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError

__all__ = [
    "BoolArray",
    "FloatArray",
    "IntArray",
    "finite_matrix",
    "finite_vector",
    "predictors_and_response",
]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def finite_vector(values: npt.ArrayLike, name: str) -> FloatArray:
    """``values`` as doubles of one dimension, all finite; else StatsInputError naming ``name``."""
    return _finite(values, name, n_dims=1)


def finite_matrix(values: npt.ArrayLike, name: str) -> FloatArray:
    """``values`` as doubles of two dimensions, all finite; else StatsInputError naming ``name``."""
    return _finite(values, name, n_dims=2)


def predictors_and_response(
    X_NP: npt.ArrayLike, y_N: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Both as finite doubles, with as many rows as y has values, at least one."""
    X, y = finite_matrix(X_NP, "X_NP"), finite_vector(y_N, "y_N")
    if len(X) != len(y) or len(y) == 0:
        raise StatsInputError("X_NP", expected=f"{max(len(y), 1)} rows, as in y", found=len(X))
    return X, y


def _finite(values: npt.ArrayLike, name: str, *, n_dims: int) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StatsInputError(name, problem=f"is not an array of numbers ({error})") from error
    if array.ndim != n_dims:
        raise StatsInputError(name, expected=f"{n_dims} dimensions", found=array.ndim)
    n_bad = int(np.count_nonzero(~np.isfinite(array)))
    if n_bad:
        raise StatsInputError(
            name,
            expected="finite numbers only",
            found=f"{n_bad} of {array.size} that are not",
            next_step="leave out the cells without a value",
        )
    return array
