"""FP8: weights that are quantised while loading, and an FP8 KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.engine_server import Answer, EngineMemory, ask, engine_memory
from benchmarks.quantized_speed import PROMPTS, TOKENS, WARM_TOKENS
from benchmarks.table import at_least, at_most
from quantization.figures import agreement

from gpu_check.contract import Bench, Finding, Reading, finding, judged, left_out
from gpu_check.engines import settings, started
from gpu_check.machine import GIB
from gpu_check.speculation import tpot_ms

LEAST_CAPABILITY = 8.9
"""Ada; an older GPU only saves memory with FP8."""


def fp8(bench: Bench) -> Iterator[Finding]:
    capability = bench.machine.gpus[0].capability
    if capability < LEAST_CAPABILITY:
        yield left_out("FP8", f"compute capability {capability:g}: FP8 needs {LEAST_CAPABILITY:g}")
        return
    memory, answers = _run(bench)
    quantised, said = _run(bench, quantization="fp8")
    yield finding(
        "weights in FP8",
        Reading("16 bits", memory.weights / GIB, "GiB"),
        judged("FP8 over 16 bits", quantised.weights / memory.weights, "×", at_most(0.8)),
        Reading("TPOT", tpot_ms(said), "ms"),
        Reading("over 16 bits", tpot_ms(said) / tpot_ms(answers), "×"),
        _alike(answers, said),
    )
    cached, said = _run(bench, kv_cache_dtype="fp8")
    yield finding(
        "KV cache in FP8",
        Reading("16 bits", memory.kv_tokens, "tokens"),
        judged("FP8 over 16 bits", cached.kv_tokens / memory.kv_tokens, "×", at_least(1.8)),
        Reading("over 16 bits, TPOT", tpot_ms(said) / tpot_ms(answers), "×"),
        _alike(answers, said),
    )


def _run(bench: Bench, **engine: Any) -> tuple[EngineMemory, list[Answer]]:
    with started(bench, settings(bench, small=True, **engine)) as endpoint:
        ask(endpoint, PROMPTS[:1], WARM_TOKENS)
        return engine_memory(endpoint), ask(endpoint, PROMPTS, TOKENS)


def _alike(answers: list[Answer], said: list[Answer]) -> Reading:
    share = agreement([each.token_ids for each in answers], [each.token_ids for each in said])
    return Reading("greedy tokens before the first difference", 100 * share, "%")
