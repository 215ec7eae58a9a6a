"""Sentence embeddings from the token vectors inside the ``wordllama`` wheel (MIT), on any CPU.

A text is the mean of its tokens' vectors, scaled to length 1: a bag of tokens. Word order is
invisible to it, and it knows next to nothing about any language but English.

The package itself is never imported: it configures logging, and its loader looks for the packaged
tokenizer in a folder that does not exist and then downloads one. Its two files are read by path,
their bytes compared with the digests below, and those very bytes are parsed.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eps_locked.canonical import digest_bytes
from eps_locked.errors import BackendError

__all__ = [
    "DIMENSION",
    "MODEL",
    "PACKAGE_VERSION",
    "TOKENIZER_DIGEST",
    "WEIGHTS_DIGEST",
    "SentenceEmbedder",
    "load_embedder",
]

FloatArray = npt.NDArray[np.float32]

MODEL: Final = "wordllama-l2-supercat-256"
PACKAGE_VERSION: Final = "0.4.0.post1"
DIMENSION: Final = 256
_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
WEIGHTS_DIGEST: Final = "blake3:b339f9710085af8eb72d393b6a3625983bca9a23ce19194ce1298eae2a4c021b"
TOKENIZER_DIGEST: Final = "blake3:3642b1549c23f1ce58322e77edadadb5b02e299ec286b1cbf57568451b19f89a"


class SentenceEmbedder:
    """Texts to vectors of length 1. Shape letters: T texts, D dimensions."""

    def __init__(self, vectors_VD: FloatArray, tokenizer: Any) -> None:
        self._vectors = vectors_VD
        self._tokenizer = tokenizer

    def embed(self, text: str) -> FloatArray:
        """Shape (D,), float32; zeros for a text without tokens.

        The same bits for the same text: each text is read by itself, sums over tokens run in the
        order of the tokens, and no library that counts threads has a part in it.
        """
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        if not ids:
            return np.zeros(DIMENSION, dtype=np.float32)
        mean = self._vectors[ids].mean(axis=0, dtype=np.float64)
        # fsum is exactly rounded, whatever order a processor would add in.
        length = math.sqrt(math.fsum(np.square(mean).tolist()))
        unit: FloatArray = (mean / length if length > 0 else mean).astype(np.float32)
        return unit

    def embed_all(self, texts: Sequence[str]) -> FloatArray:
        """Shape (T, D); row t is exactly ``embed(texts[t])``."""
        rows = [self.embed(text) for text in texts]
        return np.stack(rows) if rows else np.zeros((0, DIMENSION), dtype=np.float32)


@cache
def load_embedder() -> SentenceEmbedder:
    """The packaged embedder, verified; loaded once per process.

    Raises BackendError if the package is missing or its files are not the pinned ones.
    """
    return read_embedder(_package_folder())


def read_embedder(folder: Path) -> SentenceEmbedder:
    """From the files below ``folder``; BackendError unless they are the pinned ones."""
    weights = _read_pinned(folder / _WEIGHTS, WEIGHTS_DIGEST)
    tokenizer_bytes = _read_pinned(folder / _TOKENIZER, TOKENIZER_DIGEST)
    try:
        from safetensors.numpy import load
        from tokenizers import Tokenizer
    except ImportError as error:
        raise _missing(str(error)) from error
    # The packaged half-precision numbers become float32 without loss.
    vectors = load(weights)["embedding.weight"].astype(np.float32)
    tokenizer = Tokenizer.from_buffer(tokenizer_bytes)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return SentenceEmbedder(vectors, tokenizer)


def _package_folder() -> Path:
    found = importlib.util.find_spec("wordllama")
    places = list(found.submodule_search_locations or ()) if found else []
    if not places:
        raise _missing("package wordllama is not installed")
    return Path(places[0])


def _read_pinned(path: Path, expected: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _missing(f"{path.name}: {error.strerror}") from error
    found = digest_bytes(data)
    if found != expected:
        raise BackendError(
            path.name,
            expected=expected,
            found=found,
            next_step=f"install exactly wordllama=={PACKAGE_VERSION}; do not use these bytes",
        )
    return data


def _missing(problem: str) -> BackendError:
    return BackendError(
        "prototype judge",
        problem=problem,
        next_step='install the package with its extra "prototype"',
    )
