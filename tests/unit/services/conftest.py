"""Services under test meet no proxy and no vendor's setting of this machine."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("OPENAI_") or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
