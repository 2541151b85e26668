"""The memory of a thousand nearly idle streams that stay open for a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines import scripted_engine
from benchmarks.layer import settings_for
from benchmarks.load import Sample, chat_request, closed_loop, run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint, promptly
from benchmarks.table import Figure, at_most, write_report
from deployments.launcher.processes import descendants

MODEL = "scripted"
STREAMS = 1000
TOKENS, ITL_MS = 13, 5000.0  # the first token comes at once: sixty seconds
SETTLED_S = 30.0
"""Seconds after the start of the streams at which memory is measured: by then it has settled."""


@dataclass(frozen=True)
class Held:
    """One repeat: bytes per stream above the serving side's memory before, and streams that were cut."""

    bytes_per_stream: float
    dropped: int


def run(options: Options) -> list[Figure]:
    streams = 100 if options.quick else STREAMS
    held = []
    for _ in range(options.repeats):
        with (
            scripted_engine(MODEL, TOKENS, ITL_MS, slots=2 * STREAMS) as engine,
            promptly(settings_for(engine.url, max_requests=2 * STREAMS)) as endpoint,
        ):
            held.append(run_fast(hold(endpoint, streams)))
    kib = tuple(each.bytes_per_stream / 1024 for each in held)
    figures = [
        Figure(f"memory per stream, {streams} streams", "KB", kib, at_most(60)),
        Figure("streams dropped", "", tuple(float(each.dropped) for each in held), at_most(0)),
    ]
    about = {
        "engine": f"a token every {ITL_MS / 1000:g} s",
        "memory": "proportional set size, gateway and proxy",
    }
    write_report(options.out, "idle", figures, about=about)
    return figures


async def hold(endpoint: Endpoint, streams: int) -> Held:
    requests = [chat_request(endpoint.model, f"Stream {number}.", TOKENS) for number in range(streams)]
    warm = [chat_request(endpoint.model, "Warm.", 1) for _ in range(8)]
    await closed_loop(endpoint.url, warm, 8)
    pids = data_plane(endpoint.pids)
    before = memory(pids)
    load = asyncio.ensure_future(closed_loop(endpoint.url, requests, streams))
    await asyncio.sleep(SETTLED_S)
    after = memory(pids)
    samples: Sequence[Sample] = await load
    return Held((after - before) / streams, sum(not sample.ok for sample in samples))


def data_plane(roots: Sequence[int]) -> list[int]:
    """The processes that a stream passes through: the gateway replicas and the proxy."""
    tree = [pid for root in roots for pid in (root, *descendants(root))]
    return [pid for pid in tree if any(word in name_of(pid) for word in ("Gateway", "haproxy"))]


def name_of(pid: int) -> str:
    """The command line of a process; empty if it has just ended."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return command.replace(b"\0", b" ").decode(errors="replace")


def memory(pids: Sequence[int]) -> int:
    """Memory of these processes in bytes (PSS: shared pages count in parts)."""
    return sum(1024 * _pss_kib(Path(f"/proc/{pid}/smaps_rollup")) for pid in pids)


def _pss_kib(rollup: Path) -> int:
    line = next(line for line in rollup.read_text().splitlines() if line.startswith("Pss:"))
    return int(line.split()[1])
