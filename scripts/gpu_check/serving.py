"""Bare ``vllm serve`` against Promptly in front of the same engine, by number of streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.peers import bare_vllm, promptly
from benchmarks.table import at_least, at_most
from benchmarks.vllm_load import MODEL, Level, measure

from gpu_check.contract import Bench, Finding, Reading, finding, judged
from gpu_check.engines import arguments, settings, variables

GPU_REQUESTS: Mapping[int, int] = {1: 32, 16: 128, 64: 512, 256: 2048}
CPU_REQUESTS: Mapping[int, int] = {1: 6, 4: 12}
"""Requests by streams at once. On a CPU more streams measure the CPU."""

TTFT, CROWD_TTFT, TOKENS, CROWD = 1.2, 2.0, 0.9, 256
"""Promptly's figure over bare vLLM's. Judged on a GPU only: on a CPU both sides share the cores."""


def serving(bench: Bench) -> Iterator[Finding]:
    requests = GPU_REQUESTS if bench.on_gpu else CPU_REQUESTS
    model = settings(bench)
    tokenizer = Path(bench.model)
    with bare_vllm(MODEL, tokenizer, arguments(model), variables(bench, model)) as endpoint:
        bare = measure(endpoint, tokenizer, requests)
    with promptly({"models": [model]}) as endpoint:
        ours = measure(endpoint, tokenizer, requests)
    for streams in requests:
        yield compared(streams, bare[streams], ours[streams], judge=bench.on_gpu)


def compared(streams: int, bare: Level, ours: Level, *, judge: bool) -> Finding:
    ttft, tokens = ours.ttft_p50_ms / bare.ttft_p50_ms, ours.tokens_per_s / bare.tokens_per_s
    ratios = [
        judged("TTFT over bare", ttft, "×", at_most(TTFT if streams < CROWD else CROWD_TTFT)),
        judged("throughput over bare", tokens, "×", at_least(TOKENS)),
    ]
    if not judge:
        ratios = [Reading(each.name, each.value, each.unit) for each in ratios]
    return finding(
        "1 stream" if streams == 1 else f"{streams} streams",
        Reading("bare TTFT p50", bare.ttft_p50_ms, "ms"),
        Reading("Promptly's", ours.ttft_p50_ms, "ms"),
        Reading("bare TPOT p50", bare.tpot_p50_ms, "ms"),
        Reading("Promptly's", ours.tpot_p50_ms, "ms"),
        Reading("bare", bare.tokens_per_s, "tok/s"),
        Reading("Promptly", ours.tokens_per_s, "tok/s"),
        *ratios,
        judged("failed requests", bare.failed + ours.failed, "", at_most(0)),
        reason="" if judge else "speed is reported, and judged on a GPU only",
    )
