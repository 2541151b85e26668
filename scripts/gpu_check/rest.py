"""An idle replica sleeps and gives its GPU memory back; the next request wakes it."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.load import chat_request
from benchmarks.peers import Endpoint, PeerError, promptly
from benchmarks.peers.endpoint import exchange, wait_for
from benchmarks.table import at_least, at_most
from benchmarks.vllm_failover import members
from benchmarks.vllm_load import MODEL

from gpu_check.contract import Bench, Finding, Reading, finding, judged, left_out
from gpu_check.engines import EXACT, settings
from gpu_check.machine import used_gib
from gpu_check.runner import NO_GPU

RULES = {
    "min": 0,
    "max": 1,
    "sleeping": 1,
    "window_s": 4.0,
    "hold_s": 1.0,
    "zero_after_s": 2.0,
    "start_s": 5.0,
}
LEVELS = {1: "the weights wait in host memory", 2: "the weights are read again"}
ASLEEP_S, ANSWER_S = 120.0, 240.0
TOKENS = 32
GIVEN_BACK = 60
"""Percent of what the engine took; CUDA's context and graphs stay."""


@dataclass(frozen=True)
class Nap:
    """Memory on all GPUs before the start, awake, asleep and awake again, in GiB; times in seconds."""

    gib: tuple[float, float, float, float]
    first_s: float
    woken_s: float
    same: bool


def sleep(bench: Bench) -> Iterator[Finding]:
    for level, meaning in LEVELS.items():
        nap = _nap(bench, level)
        yield _woken(f"level {level}: sleeps and wakes", meaning, nap)
        subject = f"level {level}: GPU memory"
        yield memory(subject, nap.gib) if bench.on_gpu else left_out(subject, NO_GPU)


def memory(subject: str, gib: tuple[float, float, float, float]) -> Finding:
    before, awake, asleep, again = gib
    taken = awake - before
    return finding(
        subject,
        Reading("before", before, "GiB"),
        Reading("awake", awake, "GiB"),
        Reading("asleep", asleep, "GiB"),
        Reading("awake again", again, "GiB"),
        judged("given back", 100 * (awake - asleep) / taken if taken else 0.0, "%", at_least(GIVEN_BACK)),
    )


def _woken(subject: str, meaning: str, nap: Nap) -> Finding:
    return finding(
        subject,
        Reading("first answer", nap.first_s, "s"),
        Reading("answer that woke it", nap.woken_s, "s"),
        judged("answers that differ", float(not nap.same), "", at_most(0)),
        reason=meaning,
    )


def _nap(bench: Bench, level: int) -> Nap:
    before = used_gib()
    model = settings(bench, small=True, **EXACT) | {"replicas": RULES | {"sleep_level": level}}
    with promptly({"models": [model]}) as endpoint:
        text, first_s = _answer(endpoint)
        awake = used_gib()
        wait_for(lambda: _is_asleep(endpoint), ASLEEP_S, "a sleeping replica")
        asleep = used_gib()
        again, woken_s = _answer(endpoint)
        return Nap((before, awake, asleep, used_gib()), first_s, woken_s, text == again)


def _is_asleep(endpoint: Endpoint) -> bool:
    return any(member["state"] == "asleep" for member in members(endpoint.url))


def _answer(endpoint: Endpoint) -> tuple[str, float]:
    """Greedy text and its seconds. Raises: PeerError: no answer."""
    asked = chat_request(MODEL, "What is a lamp in the harbour for?", TOKENS, stream=False, temperature=0)
    began = time.monotonic()
    try:
        status, body = exchange(endpoint.url, "POST", asked.path, asked.body.decode(), timeout_s=ANSWER_S)
    except (OSError, http.client.HTTPException) as error:
        raise PeerError(f"no answer: {error!r}") from error
    if status != 200:
        raise PeerError(f"status {status}: {body[:500]!r}")
    return json.loads(body)["choices"][0]["message"]["content"], time.monotonic() - began
