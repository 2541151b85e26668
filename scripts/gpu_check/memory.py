"""``promptly plan`` against what a started engine reports of its memory."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.engine_figures import off
from benchmarks.engine_server import engine_memory
from benchmarks.table import at_most

from deployments.engine.model_files import ModelLibrary
from deployments.engine.sizing import Hardware, plan_applications
from gpu_check.contract import Bench, Finding, Reading, finding, judged, left_out
from gpu_check.engines import settings, started, store
from gpu_check.machine import GIB, planned_device
from serve_app.settings import Settings

WEIGHTS_OFF, KV_OFF_ON_CPU, KV_OFF = 10, 10, 25
"""Percent. What CUDA graphs and the second model runner reserve is the plan's least certain number."""


def plan(bench: Bench) -> Iterator[Finding]:
    model = settings(bench)
    device = planned_device(bench.machine)
    if device is None:
        yield left_out("plan", f"the plan's table has no {bench.machine.gpus[0].name}")
        return
    hardware = Hardware(device.name, bench.machine.gpus[0].memory_gib) if bench.on_gpu else Hardware()
    library = ModelLibrary(store(), offline=True)
    (planned,), _ = plan_applications([Settings.model_validate({"models": [model]})], library, hardware)
    with started(bench, model) as endpoint:
        found = engine_memory(endpoint)
    most = KV_OFF if bench.on_gpu else KV_OFF_ON_CPU
    tokens, weights = planned.memory.tokens or 0, planned.memory.weights
    held = found.weights + found.copies
    yield finding(
        "KV cache",
        Reading("planned", tokens, "tokens"),
        Reading("found", found.kv_tokens, "tokens"),
        judged("off by", off(tokens, found.kv_tokens), "%", at_most(most)),
    )
    yield finding(
        "weights",
        Reading("planned", weights / GIB, "GiB"),
        Reading("found", held / GIB, "GiB"),
        judged("off by", off(weights, held), "%", at_most(WEIGHTS_OFF)),
    )
