"""Arrays as artifact files: NumPy's own format, float32, one byte string for one array."""

from __future__ import annotations

import io
import math

import numpy as np
import numpy.typing as npt

from eps_locked.errors import EvidenceError, MalformedInputError

__all__ = ["FloatArray", "array_bytes", "read_array"]

FloatArray = npt.NDArray[np.float64]
_ITEM_BYTES = 4


def array_bytes(values: npt.ArrayLike) -> bytes:
    """``values`` rounded to float32 as an ``.npy`` file (version 1.0, little-endian, C order).

    Raises MalformedInputError for a value that is not finite: a NaN on disk would be no reading.
    """
    array = np.ascontiguousarray(values, dtype="<f4")
    if not np.isfinite(array).all():
        raise MalformedInputError("array", expected="finite numbers", found="NaN or infinite")
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=False)
    return sink.getvalue()


def read_array(data: bytes, thing: str, shape: tuple[int, ...]) -> FloatArray:
    """The numbers of a file that ``array_bytes`` wrote for this shape, as float64.

    The header is compared, not parsed: a stranger's header never reaches NumPy, and "bytes read"
    and "bytes hashed" are one thing. Raises EvidenceError for any other bytes.
    """
    n_bytes = _ITEM_BYTES * math.prod(shape)
    if len(data) <= n_bytes:
        raise EvidenceError(
            thing, expected=f"an array of shape {shape}", found=f"{len(data)} bytes"
        )
    header = array_bytes(np.zeros(shape))[: -n_bytes or None]
    if data[: len(data) - n_bytes] != header:
        raise EvidenceError(
            thing, expected=f"a float32 .npy file of shape {shape}", found="another header"
        )
    values = np.frombuffer(data, dtype="<f4", offset=len(header)).astype(np.float64).reshape(shape)
    if not np.isfinite(values).all():
        raise EvidenceError(thing, expected="finite numbers", found="NaN or infinite")
    return values
