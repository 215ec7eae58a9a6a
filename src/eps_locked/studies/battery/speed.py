"""How fast a model answers: requests one after another, each timed where it is sent.

One at a time, because requests side by side would measure each other. A reply that ran into its
limit of tokens is timed like any other; one that did not come is not.
"""

from __future__ import annotations

from eps_locked.domain.chat import ChatReply
from eps_locked.studies.battery.derive import SpeedDesign
from eps_locked.studies.battery.endpoints import require_enough
from eps_locked.studies.battery.records import SpeedRecord, SpeedRow
from eps_locked.studies.battery.task import Task

__all__ = ["measure_speed", "speed_row"]

_TIMED = ("answered", "truncated")
_DECIMALS = 6


def measure_speed(task: Task) -> SpeedRecord:
    """The frozen requests in their order; the warm-up is asked and forgotten.

    Raises BackendError if more replies were lost on the line than the plan allows.
    """
    design = SpeedDesign.of(task.step, task.inputs, task.section)
    requests = design.requests()
    task.progress(f"{len(requests)} requests to {design.model.name}, one after another")
    with task.hands.endpoint(design.model, task.adapter) as endpoint:
        identity = endpoint.identity(design.model.route)
        replies = [reply for request in requests for reply in endpoint.ask([request])]
    if [reply.key for reply in replies] != [request.key for request in requests]:
        raise RuntimeError("an endpoint must give one reply for each request, in order")
    timed = replies[design.axis.n_warmup :]
    require_enough(task.section.endpoint(design.model.endpoint), design.model, timed)
    return SpeedRecord(
        model=design.model.name,
        endpoint=identity.to_dict(),
        request=design.request,
        rows=tuple(map(speed_row, timed)),
    )


def speed_row(reply: ChatReply) -> SpeedRow:
    """Seconds to the microsecond; none for a reply that did not come, and no text of it."""
    # A request without room in the context is truncated as well, and was not answered at all.
    timed = reply.status in _TIMED and reply.message is not None and reply.seconds > 0
    first = reply.first_token_seconds if timed else None
    return SpeedRow(
        status=reply.status,
        n_completion_tokens=reply.n_completion_tokens if timed else None,
        first_token_seconds=None if first is None else round(first, _DECIMALS),
        seconds=round(reply.seconds, _DECIMALS) if timed else None,
    )
