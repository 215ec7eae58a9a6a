"""Small manners imposed on the model libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_load_report", "no_progress_bars"]


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


@contextmanager
def no_load_report() -> Iterator[None]:
    """Inside: transformers does not print which weights a model lacks, for callers who ask it
    themselves. Nor does it draw progress bars."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with no_progress_bars():
            yield
    finally:
        logging.set_verbosity(verbosity)
