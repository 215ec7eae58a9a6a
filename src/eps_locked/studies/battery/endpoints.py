"""Where a model answers: a service that the plan names, or our own server, up for one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from eps_locked.domain.chat import ChatEndpoint, ChatReply
from eps_locked.domain.model import AdapterFiles
from eps_locked.errors import BackendError
from eps_locked.services.make import make_endpoint
from eps_locked.services.replies import require_replies
from eps_locked.studies.battery.parts import EndpointPlan, ModelPlan
from eps_locked.studies.common.backends import Backends

__all__ = ["open_endpoint", "require_enough"]


@contextmanager
def open_endpoint(
    plan: EndpointPlan,
    model: ModelPlan,
    adapter: AdapterFiles | None,
    *,
    load: Callable[[], Backends],
    environ: Mapping[str, str],
) -> Iterator[ChatEndpoint]:
    """The endpoint of a model. Our own server offers the step's one route, and is gone afterwards.

    Raises BackendError for a key that is not set and for an extra that is not installed.
    """
    if plan.kind == "openai":
        yield make_endpoint(plan, environ)
        return
    try:
        from eps_locked.serving.rules import ServedRoute, ServingRules
        from eps_locked.serving.server import start_server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "eps_locked":
            raise  # our own defect
        raise BackendError(
            f"endpoint {plan.name}",
            problem=f"our own server needs {error.name}, which is not installed",
            next_step="install the extra serve: pip install 'eps-locked[serve]'",
        ) from error
    assert plan.max_context is not None
    backends = load()
    with start_server(
        backends.engine,
        backends.tokenizer,
        [ServedRoute(name=model.route, adapter=adapter)],
        rules=ServingRules(context_length=plan.max_context),
    ) as server:
        yield make_endpoint(plan, environ, url=server.url, kind="serve")


def require_enough(plan: EndpointPlan, model: ModelPlan, replies: Sequence[ChatReply]) -> None:
    """Raises BackendError if more replies were lost on the line than the plan lets be recorded."""
    from eps_locked.services.chat import rules_for

    require_replies(rules_for(plan, model.route), replies)
