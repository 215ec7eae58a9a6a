from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from eps_locked.models.source import SMOLLM2_135M, cache_root, cached

sys.path.insert(0, str(Path(__file__).parent))  # for tiny_llama, in every import mode


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="the hf extra is not installed")
    from tiny_llama import write_folder

    return write_folder(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def embedded_folder() -> Path:
    folder = cached(SMOLLM2_135M, cache_root(os.environ))
    if folder is None:
        pytest.skip("the embedded model is not in the cache; `eps-locked demo` puts it there")
    return folder
