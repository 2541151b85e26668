"""The cost of a serving layer: the same scripted engine alone, behind Promptly and behind its peers.

The engine takes 20 ms for each of 50 tokens. A closed loop runs 1, 16, 64 and 256 streams. All streams begin
at the same moment, and so do their later requests, which is the worst case for TTFT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.engines import scripted_engine
from benchmarks.load import chat_request, closed_loop, cpu_seconds, run_fast, summarise
from benchmarks.options import Options
from benchmarks.peers import Endpoint, Script, litellm, promptly, ray_serve_llm_default, ray_serve_llm_direct
from benchmarks.table import Figure, at_least, at_most, comparison, plot_bars, table, write_report

MODEL = "scripted"
TOKENS = 50
ITL_MS = 20.0
STREAMS = (1, 16, 64, 256)
WAVES = {1: 10, 16: 8, 64: 6, 256: 3}
"""Requests per stream; at 256 streams two cores are overloaded."""

CROWD = 64
"""The number of streams for the targets of a loaded gateway."""

OVERLOAD = 256
"""The number of streams for the targets of a gateway whose two cores are not enough."""

BARE, PROMPTLY = "bare engine", "Promptly"
ABOUT = {
    "engine": f"scripted, {TOKENS} tokens, {ITL_MS:g} ms each",
    "load": "closed loop, streams begin together",
}


@dataclass(frozen=True)
class Level:
    """One run at one number of streams."""

    ttft_p50_ms: float
    ttft_p99_ms: float
    chunk_delay_p50_ms: float
    chunk_delay_p99_ms: float
    tokens_per_s: float
    cpu_s_per_1k_tokens: float
    errors: float


UNITS = {
    "ttft_p50_ms": ("TTFT p50", "ms"),
    "ttft_p99_ms": ("TTFT p99", "ms"),
    "chunk_delay_p50_ms": ("chunk delay p50", "ms"),
    "chunk_delay_p99_ms": ("chunk delay p99", "ms"),
    "tokens_per_s": ("throughput", "tok/s"),
    "cpu_s_per_1k_tokens": ("CPU per 1,000 tokens", "s"),
    "errors": ("errors", ""),
}

Peer = Callable[[str], AbstractContextManager[Endpoint]]
"""Starts a peer. The argument is the URL of the scripted engine, for peers in front of it."""


def settings_for(url: str, max_requests: int = 512, **args: Any) -> dict[str, Any]:
    """Promptly with the scripted engine as its only member."""
    upstream = {"name": "engine", "url": f"{url}/v1", "kind": "vllm", "max_requests": max_requests}
    return {"models": [{"id": MODEL, "upstreams": [upstream]}], **args}


@contextmanager
def behind_promptly(url: str) -> Iterator[Endpoint]:
    with promptly(settings_for(url)) as endpoint:
        yield endpoint


def peers(options: Options) -> dict[str, Peer]:
    script = Script(tokens=TOKENS, itl_ms=ITL_MS)
    found: dict[str, Peer] = {
        PROMPTLY: behind_promptly,
        "ray.serve.llm, direct streaming": lambda _: ray_serve_llm_direct(MODEL, script),
        "ray.serve.llm": lambda _: ray_serve_llm_default(MODEL, script),
    }
    if options.litellm:
        found["LiteLLM proxy"] = lambda url: litellm(url, MODEL)
    return found


def measure(endpoint: Endpoint, streams: int, waves: int) -> Level:
    """Run one closed loop; CPU time is counted for the serving side only."""
    requests = [
        chat_request(endpoint.model, f"Question {number}.", TOKENS) for number in range(streams * waves)
    ]
    before = sum(cpu_seconds(endpoint.pids).values())
    summary = summarise(run_fast(closed_loop(endpoint.url, requests, streams)), ITL_MS / 1000)
    used = sum(cpu_seconds(endpoint.pids).values()) - before
    return Level(
        ttft_p50_ms=summary.ttft_p50_ms,
        ttft_p99_ms=summary.ttft_p99_ms,
        chunk_delay_p50_ms=summary.chunk_delay_p50_ms,
        chunk_delay_p99_ms=summary.chunk_delay_p99_ms,
        tokens_per_s=summary.tokens_per_s,
        cpu_s_per_1k_tokens=used / max(1, summary.tokens) * 1000,
        errors=summary.errors + summary.refused,
    )


Pair = tuple[Level, Level]
"""The bare engine and the server in front of it, measured one after the other."""

Pairs = dict[tuple[str, int], list[Pair]]
"""The pairs by peer and number of streams, one pair per repeat."""


def run(options: Options) -> list[Figure]:
    pairs: Pairs = {}
    for repeat in range(options.repeats):
        for name, peer in list(peers(options).items())[:: options.order(repeat)]:
            with scripted_engine(MODEL, TOKENS, ITL_MS) as engine, peer(engine.url) as endpoint:
                for warm in (engine, endpoint):
                    measure(warm, 8, 1)  # opens connections and runs all code once
                for streams in STREAMS:
                    pair = _pair(engine, endpoint, streams, options, repeat)
                    pairs.setdefault((name, streams), []).append(pair)
    figures = all_figures(pairs)
    write_report(options.out, "layer", figures, layout=layout, about=ABOUT)
    for streams in (1, 64):
        _plot(options, figures, streams)
    return figures


def _pair(engine: Endpoint, endpoint: Endpoint, streams: int, options: Options, repeat: int) -> Pair:
    waves = 1 if options.quick else WAVES[streams]
    order = options.order(repeat)
    levels = [measure(each, streams, waves) for each in (engine, endpoint)[::order]]
    bare, behind = levels[::order]
    return bare, behind


def all_figures(pairs: Pairs) -> list[Figure]:
    """The targets first, then every measured number; the bare engine's numbers are those measured
    beside Promptly."""
    shown = targets(pairs)
    for streams in STREAMS:
        shown += _figures(BARE, streams, [bare for bare, _ in pairs[PROMPTLY, streams]])
        for name in dict.fromkeys(name for name, _ in pairs):
            shown += _figures(name, streams, [behind for _, behind in pairs[name, streams]])
    return shown


def targets(pairs: Pairs) -> list[Figure]:
    """The ratios within each repeat, and their limits."""
    alone, crowd = pairs[PROMPTLY, 1], pairs[PROMPTLY, CROWD]
    overloaded = pairs[PROMPTLY, OVERLOAD]
    best_p50 = _best_of_peers(pairs, CROWD, "ttft_p50_ms")
    best_p99 = _best_of_peers(pairs, OVERLOAD, "ttft_p99_ms")
    return [
        Figure(
            "added TTFT p50, 1 stream",
            "ms",
            tuple(behind.ttft_p50_ms - bare.ttft_p50_ms for bare, behind in alone),
            at_most(3),
        ),
        Figure(
            f"TTFT p50 over bare, {CROWD} streams",
            "×",
            tuple(behind.ttft_p50_ms / bare.ttft_p50_ms for bare, behind in crowd),
            at_most(1.2),
        ),
        Figure(
            f"TTFT p50 over the best peer's, {CROWD} streams",
            "×",
            tuple(behind.ttft_p50_ms / other for (_, behind), other in zip(crowd, best_p50, strict=True)),
            at_most(1),
        ),
        Figure(
            f"throughput over bare, {CROWD} streams",
            "×",
            tuple(behind.tokens_per_s / bare.tokens_per_s for bare, behind in crowd),
            at_least(0.95),
        ),
        Figure(
            f"chunk delay p99, {CROWD} streams",
            "ms",
            tuple(behind.chunk_delay_p99_ms for _, behind in crowd),
            at_most(15),
        ),
        Figure(
            f"TTFT p50 over bare, {OVERLOAD} streams",
            "×",
            tuple(behind.ttft_p50_ms / bare.ttft_p50_ms for bare, behind in overloaded),
            at_most(2),
        ),
        Figure(
            f"TTFT p99 over the best peer's, {OVERLOAD} streams",
            "×",
            tuple(
                behind.ttft_p99_ms / other for (_, behind), other in zip(overloaded, best_p99, strict=True)
            ),
            at_most(1),
        ),
        Figure(
            f"throughput over bare, {OVERLOAD} streams",
            "×",
            tuple(behind.tokens_per_s / bare.tokens_per_s for bare, behind in overloaded),
            at_least(0.9),
        ),
    ]


def _best_of_peers(pairs: Pairs, streams: int, figure: str) -> list[float]:
    """The lowest of the peers' figures, by repeat."""
    others = [levels for (name, count), levels in pairs.items() if name != PROMPTLY and count == streams]
    return [min(getattr(level, figure) for _, level in repeat) for repeat in zip(*others, strict=True)]


def _figures(series: str, streams: int, levels: Sequence[Level]) -> list[Figure]:
    return [
        Figure(
            f"{name}, {_streams(streams)}",
            unit,
            tuple(getattr(level, field) for level in levels),
            series=series,
        )
        for field, (name, unit) in UNITS.items()
    ]


def layout(figures: Sequence[Figure]) -> str:
    """The Markdown: the targets as a list, all other figures side by side."""
    aimed = [figure for figure in figures if figure.target is not None]
    others = [figure for figure in figures if figure.target is None]
    return f"{table(aimed)}\n\n{comparison(others)}"


def _plot(options: Options, figures: Sequence[Figure], streams: int) -> None:
    names = (f"TTFT p50, {_streams(streams)}", f"chunk delay p99, {_streams(streams)}")
    chosen = [figure for figure in figures if figure.name in names and figure.target is None]
    plot_bars(options.out / f"layer-{streams}.png", f"Scripted engine, {_streams(streams)}", chosen)


def _streams(count: int) -> str:
    return "1 stream" if count == 1 else f"{count} streams"
