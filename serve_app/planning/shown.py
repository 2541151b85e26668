"""A plan as values, for the console; ``report`` is the text that ``promptly plan`` prints."""

from __future__ import annotations

from typing import Any

from serve_app.planning.engine_request import GIB
from serve_app.planning.plan import ModelPlan
from serve_app.planning.problems import Problem
from serve_app.planning.report import SHOWN_PROMPT_TOKENS, Demand, memory_rows, report
from serve_app.settings import ModelSettings


def shown(plan: ModelPlan, demand: Demand) -> dict[str, Any]:
    """Sizes in GiB, times in milliseconds; ``None``: not known without the device or the shape."""
    return {
        "where": plan.where,
        "id": plan.id,
        "source": plan.source,
        "known": True,
        "shape": plan.architecture.name,
        "device": None if plan.device is None else plan.device.name,
        "devices": plan.request.devices,
        "replicas": {"min": plan.min_replicas, "max": plan.max_replicas},
        "context": plan.context,
        "memory": _memory(plan),
        "kv_bytes_per_token": plan.memory.kv_per_token or None,
        "kv_tokens": plan.memory.tokens,
        "requests_at_once": plan.memory.requests(plan.context),
        "speed": _speed(plan),
        "report": list(report(plan, demand)),
        "notes": list(plan.notes),
        "problems": [shown_problem(problem) for problem in plan.problems],
    }


def unknown_model(index: int, model: ModelSettings, source: str, folder: str | None = None) -> dict[str, Any]:
    """A model whose files cannot be read. ``folder``: where they would lie, if they are only not here."""
    found = {"where": f"models[{index}]", "id": model.id, "source": source, "known": False, "problems": []}
    if folder is None:
        return found
    why = (
        f"The machine of this gateway has no config.json of {source} ({folder} is missing), and Promptly's "
        "record does not list it, so its memory and speed cannot be computed here. `promptly plan` does it "
        "on a machine that has the model or reaches the hub."
    )
    return found | {"why": why}


def shown_problem(problem: Problem) -> dict[str, str]:
    return {"setting": problem.setting, "text": str(problem)}


def _memory(plan: ModelPlan) -> dict[str, Any]:
    taken = plan.memory
    return {
        "parts": {name: size / GIB for name, size in memory_rows(taken) if size},
        "kv_cache": None if taken.kv_bytes is None else taken.kv_bytes / GIB,
        "usable": None if taken.usable is None else taken.usable / GIB,
    }


def _speed(plan: ModelPlan) -> dict[str, float] | None:
    if plan.speed is None:
        return None
    one, many = (plan.speed.decode_step_s(batch, SHOWN_PROMPT_TOKENS) * 1e3 for batch in (1, 32))
    prefill = plan.speed.prefill_s(SHOWN_PROMPT_TOKENS) * 1e3
    return {"token_ms": one, "token_ms_of_32": many, "prefill_ms": prefill}
