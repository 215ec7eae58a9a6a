"""Just enough PNG to look at a screenshot: 8-bit RGB or RGBA, not interlaced, as numpy arrays."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


def read_png(data: bytes) -> Pixels:
    """Pixels, shape (height, width, channels). Raises ValueError for any other kind of PNG."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError("not a PNG")
    at, packed, header = 8, b"", b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        header = body if kind == b"IHDR" else header
        packed += body if kind == b"IDAT" else b""
        at += length + 12
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", header)
    if depth != 8 or colour not in (2, 6) or interlace:
        raise ValueError("expected 8-bit RGB or RGBA, not interlaced")
    n = 3 if colour == 2 else 4
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, width * n + 1)
    pixels = np.zeros((height, width * n), np.int64)
    previous = np.zeros(width * n, np.int64)
    for number, row in enumerate(rows):
        previous = pixels[number] = _unfilter(int(row[0]), row[1:].astype(np.int64), previous, n)
    return pixels.astype(np.uint8).reshape(height, width, n)


def _unfilter(kind: int, row: npt.NDArray, above: npt.NDArray, n: int) -> npt.NDArray:
    if kind == 0:
        return row
    if kind == 1:
        return np.cumsum(row.reshape(-1, n), axis=0).reshape(-1) % 256
    if kind == 2:
        return (row + above) % 256
    out, up = row.tolist(), above.tolist()
    for x, value in enumerate(out):
        a, b, c = (out[x - n], up[x], up[x - n]) if x >= n else (0, up[x], 0)
        if kind == 3:
            guess = (a + b) // 2
        else:
            near = (abs(b - c), abs(a - c), abs(a + b - 2 * c))
            guess = (a, b, c)[near.index(min(near))]
        out[x] = (value + guess) % 256
    return np.array(out)
