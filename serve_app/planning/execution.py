"""Predicts from the settings how vLLM will run an engine: model runner, CUDA graphs and scheduling.

The rules are those of vLLM 0.29 on CUDA: ``VllmConfig._get_v2_model_runner_unsupported_features``,
``_maybe_override_dynamic_sd_cudagraph_mode``, the choice of ``async_scheduling`` in ``__post_init__``, and
the graph modes of ``OPTIMIZATION_LEVEL_TO_CONFIG``. A test compares them with vLLM's own configuration. The
attention kernels may allow fewer graphs; vLLM notices that only while it loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from serve_app.settings import EngineSettings, SpeculationSettings
from serve_app.settings.engine import DEPTH_CAN_CHANGE, READS_THE_TEXT

SECOND_RUNNER_METHODS = frozenset({"eagle", "eagle3", "mtp"})
"""Speculation methods of vLLM's second model runner; all others use the first one."""

ASYNC_METHODS = SECOND_RUNNER_METHODS | {"draft_model"}
"""Speculation methods of vLLM's asynchronous scheduler."""

GRAPHS_BY_LEVEL: Mapping[int, str] = {0: "none", 1: "piecewise", 2: "full_and_piecewise"}
"""CUDA graph modes by ``optimization_level``; 2 is vLLM's default, and 3 has the same mode."""


@dataclass(frozen=True, slots=True)
class Execution:
    """``runner``: 1 or 2 (vLLM's "V1" and "V2" model runner). ``graphs``: vLLM's ``cudagraph_mode`` in lower
    case. ``reasons``: why vLLM does not use the second runner, full graphs or asynchronous scheduling."""

    runner: int
    graphs: str
    is_async: bool
    reasons: tuple[str, ...] = ()


def execution(engine: EngineSettings) -> Execution | None:
    """How a GPU engine will run; ``None`` for a CPU engine, where vLLM has no choice."""
    if engine.accelerator == "cpu":
        return None
    against = tuple(_against_second_runner(engine))
    runner = _forced_runner(engine) or (1 if against else 2)
    graphs = _graphs(engine)
    mixed = sends_depths(engine) and "full" in graphs and runner == 1
    slow = _against_async(engine)
    reasons = [f"first model runner: {reason}" for reason in against if runner == 1]
    if mixed:
        reasons.append("piecewise graphs: the first runner has no whole graphs where the depth may change")
    if slow is not None:
        reasons.append(f"no asynchronous scheduling: {slow}")
    return Execution(runner, "piecewise" if mixed else graphs, slow is None, tuple(reasons))


def sends_depths(engine: EngineSettings) -> bool:
    """Whether vLLM's configuration gets the depths (``num_speculative_tokens_per_batch_size``).

    It never does on the second runner, which captures the draft's graphs for one query length and derives the
    lengths of all depths from it. With several depths it would compute graphs for zero or fewer requests, and
    the start would fail (vLLM 0.29: ``AutoRegressiveSpeculator.init_cudagraph_manager`` with
    ``decode_query_len=1``, ``CudaGraphManager._init_candidates``). There the scheduler alone decides the
    depth.
    """
    speculation = engine.speculation
    if speculation is None or engine.data_parallel_size > 1:
        return False
    asks = speculation.depth_by_load is not None or (
        speculation.guard and speculation.method in DEPTH_CAN_CHANGE - READS_THE_TEXT
    )
    return asks and not (engine.accelerator == "gpu" and _takes_second_runner(engine))


def schedules_depths(engine: EngineSettings) -> bool:
    """Whether Promptly's scheduler must apply ``depth_by_load``, because vLLM's configuration lacks it."""
    speculation = engine.speculation
    return speculation is not None and speculation.depth_by_load is not None and not sends_depths(engine)


def _takes_second_runner(engine: EngineSettings) -> bool:
    return (_forced_runner(engine) or (1 if any(_against_second_runner(engine)) else 2)) == 2


def _forced_runner(engine: EngineSettings) -> int | None:
    asked = engine.env.get("VLLM_USE_V2_MODEL_RUNNER")
    return None if asked is None else 1 + (asked == "1")


def _against_second_runner(engine: EngineSettings) -> Iterator[str]:
    speculation = engine.speculation
    if speculation is not None:
        yield from _speculation_against(speculation, engine.pipeline_parallel_size)
    if engine.options.get("logits_processors"):
        yield "it has logits processors of its own"
    for name in ("enable_dbo", "enable_elastic_ep", "kv_sharing_fast_prefill"):
        if engine.options.get(name):
            yield f"the second does not have {name}"


def _speculation_against(speculation: SpeculationSettings, stages: int) -> Iterator[str]:
    method = speculation.method
    if method not in SECOND_RUNNER_METHODS:
        yield f"the second does not have speculation by {method!r}"
    elif method == "eagle3" and stages > 1:
        yield "the second does not have 'eagle3' over pipeline stages"
    elif (speculation.options or {}).get("parallel_drafting"):
        yield "the second does not draft in parallel"


def _graphs(engine: EngineSettings) -> str:
    if engine.enforce_eager:
        return "none"
    if engine.cudagraph_mode is not None:
        return engine.cudagraph_mode
    asked = _asked_graphs(engine.options.get("compilation_config"))
    level = 2 if engine.optimization_level is None else min(engine.optimization_level, 2)
    return asked or GRAPHS_BY_LEVEL[level]


def _asked_graphs(compilation: Any) -> str | None:
    asked = compilation.get("cudagraph_mode") if isinstance(compilation, Mapping) else None
    return asked.lower() if isinstance(asked, str) else None


def _against_async(engine: EngineSettings) -> str | None:
    asked = engine.options.get("async_scheduling")
    speculation = engine.speculation
    if asked is False:
        return "`options.async_scheduling` is off"
    if speculation is not None and speculation.method not in ASYNC_METHODS:
        return f"vLLM has none with speculation by {speculation.method!r}"
    if speculation is not None and (speculation.options or {}).get("disable_padded_drafter_batch"):
        return "`speculation.options.disable_padded_drafter_batch` excludes it"
    return None
