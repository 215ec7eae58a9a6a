"""Progress of a phase: a live line on a terminal, a quiet log elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from eps_locked.domain.execution import StepResult
from eps_locked.domain.steps import Step

_MS_PER_HOUR = 3_600_000


class PhaseProgress:
    """Shows step x of y, the step by name, elapsed and remaining time, hours against the cap.

    The remaining time is that of the steps left at the pace their kinds have shown in this
    session, or, before a kind has run, at the plan's own estimate. Off a terminal only the
    beginning, the end and what went wrong are printed.
    """

    def __init__(
        self,
        steps: tuple[Step, ...],
        *,
        device: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = steps
        self._monotonic = monotonic
        self._device = "GPU-hours" if device.startswith("cuda") else "CPU-hours"
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._begun = monotonic()
        self._seconds: dict[str, list[float]] = {}
        self._done: set[str] = set()
        self._current: tuple[int, Step, float] | None = None
        self._note = ""
        self._cap_ms = self._spent_ms = self._n_steps = 0
        self.flagged = 0

    def __enter__(self) -> PhaseProgress:
        if sys.stderr.isatty():
            self._live = Live(
                get_renderable=self._line,
                console=self._console,
                refresh_per_second=4,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def phase_opened(self, phase: str, n_steps: int, n_done: int, cap_ms: int) -> None:
        self._n_steps, self._cap_ms = n_steps, cap_ms
        if n_done:
            click.echo(f"{phase}: resuming, {n_done} of {n_steps} steps are recorded", err=True)
        else:
            click.echo(f"{phase}: {n_steps} steps", err=True)

    def step_started(self, number: int, step: Step, spent_ms: int) -> None:
        self._current = (number, step, self._monotonic())
        self._spent_ms, self._note = spent_ms, ""

    def step_progress(self, text: str) -> None:
        self._note = text

    def step_finished(self, step: Step, result: StepResult, spent_ms: int) -> None:
        if self._current is not None:
            seconds = self._monotonic() - self._current[2]
            self._seconds.setdefault(step.kind, []).append(seconds)
        self._done.add(step.id)
        self._spent_ms, self._current = spent_ms, None
        self.flagged += bool(result.flags) or result.status != "done"

    def phase_closed(self, phase: str, results: str, spent_ms: int) -> None:
        hours = spent_ms / _MS_PER_HOUR
        elapsed = _clock(self._monotonic() - self._begun)
        click.echo(
            f"{phase}: complete in {elapsed}, {hours:.4f} {self._device} in all sessions of "
            f"{self._cap_ms / _MS_PER_HOUR:g} authorized, {self.flagged} steps flagged",
            err=True,
        )

    def remaining_seconds(self) -> float:
        """Of the steps not yet finished, the current one's own time taken off."""
        total = 0.0
        for step in self._steps:
            if step.id not in self._done:
                seen = self._seconds.get(step.kind)
                total += sum(seen) / len(seen) if seen else step.estimate_ms / 1000
        if self._current is not None:
            total -= min(total, self._monotonic() - self._current[2])
        return total

    def _line(self) -> Text:
        if self._current is None:
            return Text("")
        number, step, started = self._current
        here = _clock(self._monotonic() - started)
        spent_ms = self._spent_ms + (self._monotonic() - started) * 1000
        return Text(
            f"step {number} of {self._n_steps}  {step.id}  {here} {self._note}\n"
            f"elapsed {_clock(self._monotonic() - self._begun)}, "
            f"about {_clock(self.remaining_seconds())} left, "
            f"{spent_ms / _MS_PER_HOUR:.4f} of {self._cap_ms / _MS_PER_HOUR:g} {self._device}",
            overflow="ellipsis",
            no_wrap=True,
        )


def _clock(seconds: float) -> str:
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
