"""Small manners imposed on the model libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_progress_bars"]


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Inside: transformers draws no progress bars. Its setting is put back afterwards."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
