"""From a plan's judge to a judge: the one place that knows all kinds.

A judge's libraries are imported when one of its kind is made, and not before.
"""

from __future__ import annotations

from collections.abc import Mapping

from eps_locked.domain.judging import Judge, JudgePlan
from eps_locked.errors import BackendError
from eps_locked.judges.transport import SERVICE
from eps_locked.services.rules import key_from, require_no_headers

__all__ = ["make_judge"]

# The vendors' clients would add these to every request, though no plan names them.
_CUSTOM_HEADERS = {
    "anthropic": "ANTHROPIC_CUSTOM_HEADERS",
    "gateway": "OPENAI_CUSTOM_HEADERS",
}


def make_judge(plan: JudgePlan, environ: Mapping[str, str]) -> Judge:
    """The judge that a plan names, with its key from ``environ``. No request is sent.

    Raises BackendError for a key that is not set and for an extra that is not installed.
    """
    _require_no_headers(plan, environ)
    key = _key(plan, environ)
    try:
        return _make(plan, key)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "eps_locked":
            raise  # our own defect
        raise BackendError(
            f"judge {plan.name}",
            problem=f"a judge of kind {plan.kind} needs {error.name}, which is not installed",
            next_step=f"install the extra {_extra(plan)}: pip install 'eps-locked[{_extra(plan)}]'",
        ) from error


def _extra(plan: JudgePlan) -> str:
    return "prototype" if plan.kind == "prototype" else "judges"


def _make(plan: JudgePlan, key: str | None) -> Judge:
    if plan.kind == "anthropic":
        from eps_locked.judges.anthropic_client import AnthropicJudge

        return AnthropicJudge(plan, key or "")
    if plan.kind == "gateway":
        from eps_locked.judges.gateway import GatewayJudge

        return GatewayJudge(plan, key)
    if plan.kind == "prototype":
        from eps_locked.judges.prototype import PrototypeJudge

        return PrototypeJudge(plan)
    if plan.kind == "lexical":
        from eps_locked.judges.lexical import LexicalJudge

        return LexicalJudge(plan)
    from eps_locked.judges.scripted import ScriptedJudge

    return ScriptedJudge(plan)


def _key(plan: JudgePlan, environ: Mapping[str, str]) -> str | None:
    """None if the plan names no variable, or the judge asks no service."""
    if plan.kind not in ("anthropic", "gateway"):
        return None
    return key_from(plan, environ, service=SERVICE, where=plan.endpoint or plan.kind)


def _require_no_headers(plan: JudgePlan, environ: Mapping[str, str]) -> None:
    variable = _CUSTOM_HEADERS.get(plan.kind)
    if variable is not None:
        require_no_headers(plan, environ, variable, service=SERVICE)
