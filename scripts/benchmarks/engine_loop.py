"""What tokens cost the process that serves an engine's HTTP, and what fewer chunks save behind it.

* One ``observe`` of a histogram, which vLLM makes for each token of each stream: through Ray's metrics, as
  ``ray.serve.llm`` has it, and through ``prometheus_client``, as vLLM's own server has it.
* The CPU time of HAProxy and the gateway per 1,000 tokens where an engine writes one, four or eight tokens in
  a chunk (vLLM's ``stream_interval``), without what they use when idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from benchmarks.engines import scripted_process
from benchmarks.layer import ITL_MS, MODEL, TOKENS, behind_promptly
from benchmarks.options import Options
from benchmarks.relay_cost import STREAMS, WAVES, Cost, measure
from benchmarks.table import Figure, comparison, write_report

OBSERVED, QUICK_OBSERVED = 200_000, 2_000
ITL_S = 0.0123
BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0),
    *(7.5, 10.0, 20.0, 40.0, 80.0),
)
"""Those of vLLM's time between tokens (``vllm/v1/metrics/loggers.py``)."""

RAY, PROMETHEUS = "Ray's metrics", "prometheus_client"
CHUNKS = (1, 4, 8)


def run(options: Options) -> list[Figure]:
    observed: list[Mapping[str, float]] = []
    costs: dict[int, list[Cost]] = {chunk: [] for chunk in CHUNKS}
    for repeat in range(options.repeats):
        observed.append(_in_own_process(QUICK_OBSERVED if options.quick else OBSERVED))
        for chunk in CHUNKS[:: options.order(repeat)]:
            costs[chunk].append(_cost(chunk, 1 if options.quick else WAVES))
    figures = figures_of(observed, costs)
    about = {
        "streams": STREAMS,
        "engine": f"scripted, {TOKENS} tokens, {ITL_MS:g} ms each",
        "observed": f"{OBSERVED:,} times",
    }
    write_report(options.out, "engine_loop", figures, layout=comparison, about=about)
    return figures


def figures_of(observed: Sequence[Mapping[str, float]], costs: Mapping[int, Sequence[Cost]]) -> list[Figure]:
    """``observed``: microseconds by series, for each repeat; ``costs``: by tokens in a chunk. A repeat whose
    streams had errors has no figure."""
    figures = [
        Figure("one `observe`", "µs", tuple(each[name] for each in observed), series=name)
        for name in (RAY, PROMETHEUS)
    ]
    for chunk, repeats in costs.items():
        for part in ("HAProxy", "gateway"):
            values = tuple(cost.parts[part] for cost in repeats if not cost.errors)
            if values:
                series = f"{chunk} in a chunk"
                figures.append(Figure(f"CPU per 1,000 tokens: {part}", "s", values, series=series))
    return figures


def _cost(chunk: int, waves: int) -> Cost:
    script = {"tokens": TOKENS, "itl_ms": ITL_MS, "first_token_ms": ITL_MS, "slots": 512}
    with (
        scripted_process(MODEL, stream_interval=chunk, **script) as engine,
        behind_promptly(engine.url) as endpoint,
    ):
        cost = measure(endpoint, waves)
    # The load generator counts events with text.
    events = 1 + -(-(TOKENS - 1) // chunk)
    return Cost({part: used * events / TOKENS for part, used in cost.parts.items()}, cost.errors)


def _in_own_process(times: int) -> Mapping[str, float]:
    """Ray begins there, and ends with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(observe, times).result()


def observe(times: int) -> dict[str, float]:
    """Microseconds of one ``observe``, by what keeps the histogram."""
    import ray
    from prometheus_client import CollectorRegistry, Histogram
    from vllm.v1.metrics.ray_wrappers import RayHistogramWrapper

    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        labels = ["model_name", "engine"]
        ours: Any = RayHistogramWrapper("bench_itl", "", labels, list(BUCKETS))
        ours = ours.labels(model_name="m", engine="0")
        registry = CollectorRegistry()
        plain = Histogram("bench_itl", "", labels, buckets=BUCKETS, registry=registry)
        theirs = plain.labels(model_name="m", engine="0")
        return {RAY: _timed(ours.observe, times), PROMETHEUS: _timed(theirs.observe, times)}
    finally:
        ray.shutdown()


def _timed(once: Callable[[float], object], times: int) -> float:
    for _ in range(100):
        once(ITL_S)
    began = time.perf_counter()
    for _ in range(times):
        once(ITL_S)
    return (time.perf_counter() - began) / times * 1e6
