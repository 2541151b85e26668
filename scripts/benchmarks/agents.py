"""Agents at work: a session of many turns, each of which sends the whole conversation again, on two engines.
Each engine's prefix cache holds about half of all conversations.

    cd scripts; python -m benchmarks --only agents --litellm
    cd scripts; python -m benchmarks --only vllm-agents

One session is measured while others run beside it. A turn's prompt is the last turn's prompt, its answer, and
what a tool returned. It is sent as long after the last answer as a tool would take. The session's name is
sent as Claude Code sends it. LiteLLM picks engines at random, and round robin does so in effect.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.engines import ScriptedProcess, scripted_process
from benchmarks.failover import text_of
from benchmarks.load import Client, Request, Sample, percentile, run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint, litellm, promptly
from benchmarks.table import Figure, at_least, at_most, write_report
from benchmarks.vllm_failover import ONE_CORE_EACH, wait_for_replicas
from benchmarks.vllm_load import SOURCE, managed_model, model_folder

MODEL = "agent"
ENGINES, SLOTS, ITL_MS = 2, 16, 5.0
PREFILL_MS_PER_1K = 60.0
"""The prefill time of roughly an 8B model in 16 bits, on a GPU between an A100 and an H100."""

CACHE_TOKENS = 112_000
"""The cache of one engine. All conversations together have about 100,000 tokens at their beginning, most of
them system prompt and tools, and 200,000 at their end: the two engines together can hold them all, and one
engine alone cannot."""

SESSION_HEADER = "x-claude-code-session-id"
LIMIT_S = 600.0
QUICK_TURNS, QUICK_OTHERS = 6, 3
USAGE = re.compile(rb'"prompt_tokens": ?(\d+).*?"cached_tokens": ?(\d+)', re.DOTALL)

PROMPTLY, ROUND_ROBIN, LITELLM = "Promptly", "round robin", "LiteLLM proxy"


@dataclass(frozen=True)
class Shape:
    """The sizes of a conversation in words (about a token and a half each), and the pause for a tool in
    seconds."""

    turns: int
    others: int
    system_words: int
    result_words: int
    answer_tokens: int
    pause_s: float


SCRIPTED = Shape(30, 8, system_words=8_000, result_words=250, answer_tokens=30, pause_s=0.3)
REAL = Shape(30, 8, system_words=500, result_words=25, answer_tokens=8, pause_s=0.5)


@dataclass(frozen=True)
class Turn:
    prompt_tokens: int
    cached_tokens: int
    ttft_s: float


@dataclass(frozen=True)
class Session:
    turns: tuple[Turn, ...]
    errors: int

    @property
    def cached_share(self) -> float:
        return sum(turn.cached_tokens for turn in self.turns) / max(
            1, sum(turn.prompt_tokens for turn in self.turns)
        )

    @property
    def ttft_p50_ms(self) -> float:
        return percentile((1000 * turn.ttft_s for turn in self.turns), 50)


@dataclass(frozen=True)
class Run:
    """The measured session, and the sessions beside it."""

    measured: Session
    others: tuple[Session, ...]

    @property
    def errors(self) -> int:
        return self.measured.errors + sum(each.errors for each in self.others)


Runs = Mapping[str, Sequence[Run]]


def run(options: Options) -> list[Figure]:
    names = [PROMPTLY, ROUND_ROBIN, *([LITELLM] if options.litellm else [])]
    shape = _shape(SCRIPTED, options)
    measured: dict[str, list[Run]] = {name: [] for name in names}
    for repeat in range(options.repeats):
        for name in names[:: options.order(repeat)]:
            with ExitStack() as stack:
                engines = [stack.enter_context(_engine()) for _ in range(ENGINES)]
                endpoint = stack.enter_context(fronts(engines)[name]())
                measured[name].append(play(endpoint, shape, seed=repeat))
    figures = all_figures(measured)
    about = {
        "engines": f"{ENGINES} scripted, {SLOTS} slots, {PREFILL_MS_PER_1K:g} ms prefill per 1,000 tokens, "
        f"{CACHE_TOKENS:,} tokens of prefix cache each",
        "load": f"one session of {shape.turns} turns, {shape.others} beside it, {shape.pause_s:g} s between "
        "turns",
    }
    write_report(options.out, "agents", figures, about=about)
    return figures


def run_real(options: Options) -> list[Figure]:
    """Run the same on two vLLM replicas with the small model; the figures are what they cached."""
    shape = _shape(REAL, options)
    model = managed_model(ONE_CORE_EACH, replicas=ENGINES)
    model["engine"] |= {"options": {"enable_prompt_tokens_details": True}, "enable_prefix_caching": True}
    model_folder()
    with promptly({"models": [model]}) as endpoint:
        wait_for_replicas(endpoint.url)
        runs = [play(endpoint, shape, seed=repeat) for repeat in range(options.repeats)]
    shares = tuple(100 * each.measured.cached_share for each in runs)
    figures = [
        Figure("vLLM: prompt tokens of a session cached", "%", shares, at_least(90)),
        *_of_each("vLLM", runs),
    ]
    about = {"engines": f"{ENGINES} × vLLM, {SOURCE}, CPU, one thread each", "load": repr(shape)}
    write_report(options.out, "vllm-agents", figures, about=about)
    return figures


def _shape(shape: Shape, options: Options) -> Shape:
    if not options.quick:
        return shape
    few = (QUICK_TURNS, QUICK_OTHERS)
    return Shape(*few, shape.system_words, shape.result_words, shape.answer_tokens, shape.pause_s)


def _engine() -> AbstractContextManager[ScriptedProcess]:
    return scripted_process(
        MODEL,
        slots=SLOTS,
        itl_ms=ITL_MS,
        prefill_ms_per_1k=PREFILL_MS_PER_1K,
        cache_tokens=CACHE_TOKENS,
        prompt_tokens_details=True,
    )


def fronts(engines: Sequence[ScriptedProcess]) -> dict[str, Callable[[], AbstractContextManager[Endpoint]]]:
    """The servers in front of the engines, by name."""
    upstreams = [
        {"name": f"e{n}", "url": f"{engine.url}/v1", "kind": "vllm", "max_requests": SLOTS}
        for n, engine in enumerate(engines)
    ]

    def ours(**gateway: Any) -> AbstractContextManager[Endpoint]:
        return promptly({"models": [{"id": MODEL, "upstreams": upstreams}], "gateway": gateway})

    return {
        PROMPTLY: ours,
        ROUND_ROBIN: lambda: ours(routing="round_robin"),
        LITELLM: lambda: litellm(engines[0].url, MODEL, others=[engine.url for engine in engines[1:]]),
    }


def play(endpoint: Endpoint, shape: Shape, *, seed: int) -> Run:
    """Run the measured session and the others, all at once."""

    async def together() -> Run:
        async with Client(endpoint.url, LIMIT_S) as client:
            sessions = [
                session(client, endpoint.model, shape, seed=1000 * seed + number)
                for number in range(1 + shape.others)
            ]
            first, *others = await asyncio.gather(*sessions)
            return Run(first, tuple(others))

    return run_fast(together())


async def session(client: Client, model: str, shape: Shape, *, seed: int) -> Session:
    """Run all turns of one agent."""
    chance = random.Random(seed)
    messages = [
        {"role": "system", "content": f"Agent {seed}. {words(chance, shape.system_words)}"},
        {"role": "user", "content": words(chance, shape.result_words)},
    ]
    turns: list[Turn] = []
    errors = 0
    await asyncio.sleep(chance.uniform(0, 2 * shape.pause_s))
    for _ in range(shape.turns):
        sample = await client.send(request(model, messages, shape.answer_tokens, f"session-{seed}"))
        if (turn := turn_of(sample)) is None:
            errors += 1
        else:
            turns.append(turn)
        messages.append({"role": "assistant", "content": said(sample)})
        messages.append({"role": "user", "content": f"Result: {words(chance, shape.result_words)}"})
        await asyncio.sleep(chance.uniform(0.5, 1.5) * shape.pause_s)
    return Session(tuple(turns), errors)


def request(model: str, messages: Sequence[Mapping[str, str]], tokens: int, name: str) -> Request:
    body = {
        "model": model,
        "messages": messages,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
    }
    headers = {SESSION_HEADER: name, "cache-control": "no-store"}
    return Request("/v1/chat/completions", json.dumps(body).encode(), headers, keep_body=True)


def turn_of(sample: Sample) -> Turn | None:
    """The figures of one turn; ``None`` if it failed or has no usage."""
    usage = USAGE.search(sample.body or b"")
    if not sample.ok or sample.ttft_s is None or usage is None:
        return None
    return Turn(int(usage[1]), int(usage[2]), sample.ttft_s)


def said(sample: Sample) -> str:
    """The answer's text. It is inside JSON, so only characters that need no escape are kept."""
    text = text_of(sample).decode(errors="ignore")
    return re.sub(r"[^\w .,]+", " ", text) or "Done."


def words(chance: random.Random, count: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(count))


WORDS = (
    "file",
    "open",
    "read",
    "line",
    "test",
    "run",
    "edit",
    "build",
    "path",
    "value",
    "name",
    "list",
    "call",
    "type",
    "return",
    "error",
)


def all_figures(measured: Runs) -> list[Figure]:
    """The targets first. Ratios are computed within each repeat."""
    ours = measured[PROMPTLY]
    shares = tuple(100 * each.measured.cached_share for each in ours)
    shown = [
        Figure("prompt tokens of a session cached", "%", shares, at_least(90)),
        _ratio(ours, measured[ROUND_ROBIN], ROUND_ROBIN, 0.3),
    ]
    if LITELLM in measured:
        shown.append(_ratio(ours, measured[LITELLM], LITELLM, 0.5))
    for name, runs in measured.items():
        shown += _of_each(name, runs)
    return shown


def _ratio(ours: Sequence[Run], others: Sequence[Run], name: str, limit: float) -> Figure:
    values = tuple(
        one.measured.ttft_p50_ms / other.measured.ttft_p50_ms for one, other in zip(ours, others, strict=True)
    )
    return Figure(f"TTFT p50 of a session's turns, over {name}", "×", values, at_most(limit))


def _of_each(name: str, runs: Sequence[Run]) -> list[Figure]:
    def of(value: Callable[[Run], float]) -> tuple[float, ...]:
        return tuple(value(each) for each in runs)

    return [
        Figure("TTFT p50 of a turn", "ms", of(lambda each: each.measured.ttft_p50_ms), series=name),
        Figure("cached, the session", "%", of(lambda each: 100 * each.measured.cached_share), series=name),
        Figure("cached, those beside it", "%", of(_others_share), series=name),
        Figure("errors", "", of(lambda each: float(each.errors)), series=name),
    ]


def _others_share(one: Run) -> float:
    together = Session(tuple(turn for each in one.others for turn in each.turns), 0)
    return 100 * together.cached_share
