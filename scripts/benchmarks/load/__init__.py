"""A load generator that is cheap per chunk: it takes timestamps while bytes arrive, and does all other work
afterwards.

    cd scripts; python -m benchmarks.load --url http://127.0.0.1:8000 --streams 64 --requests 256 --tokens 50

A *chunk* is one read that holds at least one token's event. Events that a proxy joins are one chunk, and the
wait for them shows in the gap before the chunk. *Tokens* are the events with text: a role event, a separate
finish reason, the usage event and ``[DONE]`` have none.
"""

from __future__ import annotations

from benchmarks.load.client import Client
from benchmarks.load.cpu_time import cpu_seconds, own_cpu_seconds
from benchmarks.load.figures import Summary, percentile, summarise
from benchmarks.load.requests import Request, Sample, chat_request, poisson
from benchmarks.load.runs import closed_loop, open_loop, run_fast

__all__ = [
    "Client",
    "Request",
    "Sample",
    "Summary",
    "chat_request",
    "closed_loop",
    "cpu_seconds",
    "open_loop",
    "own_cpu_seconds",
    "percentile",
    "poisson",
    "run_fast",
    "summarise",
]
