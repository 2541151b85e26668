"""Effects of engine settings (prefix cache, chunked prefill, INT8 weights), and ``promptly plan`` against
started engines.

SmolLM2 135M runs on this machine's CPUs, in vLLM's server with the arguments that Promptly passes it. Every
repeat starts three kinds of servers, the next repeat in the opposite order:

- *chunked*: prompts are prefilled ``CHUNK_TOKENS`` at a time. The prefix cache is measured here, and four
  streams run beside a long prompt;
- *whole*: the same streams and the same prompt run without chunked prefill;
- *INT8*: the folder that ``scripts/quantize.py`` makes is compared with the same model in bf16. Both run and
  are asked in turns, so that changes of the machine's speed affect both. Without such a folder this part is
  skipped with a message.

The time between tokens is measured over the gaps that overlap the long prompt's prefill: a whole prefill is
one gap of each stream, which no percentile of a long stream would show.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from quantization.figures import agreement
from quantization.schemes import INT8, quantized_source

from benchmarks.engine_server import (
    LOAD_LIMIT_S,
    MODEL,
    REST_S,
    Answer,
    EngineMemory,
    answer_of,
    ask,
    engine_memory,
    engine_server,
    greedy,
)
from benchmarks.load import open_loop, percentile, run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint, PeerError
from benchmarks.peers.vllm_server import ENGINE_ARGUMENTS
from benchmarks.quantized_speed import PROMPTS, TOKENS, WARM_TOKENS
from benchmarks.table import Figure, at_most, write_report
from benchmarks.vllm_load import SOURCE, model_folder
from deployments.engine.model_files import ModelLibrary
from deployments.engine.sizing import Hardware, plan_applications
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.settings import Settings

VOCABULARY = range(100, 49_000)
"""Ids of SmolLM2's ordinary tokens."""

PREFIX_TOKENS, QUESTION_TOKENS = 1000, 16
PREFIX_PAIRS = 3

STREAMS = 4
CHUNK_TOKENS = 256
LONG_TOKENS = 8000
"""Length of the long prompt; it must fit ``max_model_len`` with its answer."""

STREAM_TOKENS = 256
"""Length of each stream's answer; it must outlast a prefill of ``LONG_TOKENS / CHUNK_TOKENS`` steps."""

QUICK_LONG_TOKENS = 1000
LONG_AFTER_S = 1.0
ROUNDS, QUICK_ROUNDS = 4, 1
"""Rounds in which both models of a pair answer all prompts."""

LONG_ANSWER_TOKENS = 4


CHUNKED, WHOLE, QUANTISED = "chunked", "whole", "INT8"

CHUNKED_ARGUMENTS: Mapping[str, Any] = {
    **ENGINE_ARGUMENTS,
    "max_model_len": 8192,
    "enable_chunked_prefill": True,
    "max_num_batched_tokens": CHUNK_TOKENS,
}
WHOLE_ARGUMENTS: Mapping[str, Any] = {
    **ENGINE_ARGUMENTS,
    "max_model_len": 8192,
    "enable_chunked_prefill": False,
    "max_num_batched_tokens": 8192,
}
ABOUT = {
    "engine": f"{SOURCE}, CPU, " + ", ".join(f"{name} {value}" for name, value in CHUNKED_ARGUMENTS.items()),
    "long prompt": f"{LONG_TOKENS:,} tokens beside {STREAMS} streams, in chunks of {CHUNK_TOKENS} or whole",
}


@dataclass(frozen=True)
class Meeting:
    """Streams beside a long prompt. ``gaps_s`` are the streams' gaps during the prompt's prefill."""

    gaps_s: tuple[float, ...]
    ttft_s: float
    """TTFT of the long prompt."""


@dataclass(frozen=True)
class Measured:
    """The results of one server; parts that it does not measure are empty or ``None``."""

    memory: EngineMemory
    planned: EngineMemory
    prefix_shares: tuple[float, ...] = ()
    """The TTFT of a second request with the prefix of a first one, divided by that of the first."""
    meeting: Meeting | None = None
    answers: tuple[Answer, ...] = ()
    bf16_answers: tuple[Answer, ...] = ()
    """Answers to the same prompts from the model before quantization."""


Repeat = Mapping[str, Measured]
"""The results of one repeat, by server."""


def run(options: Options) -> list[Figure]:
    quantised = quantised_folder()
    if quantised is None:
        print(f"  no INT8 figures: run `python scripts/quantize.py {SOURCE} --scheme {INT8.name}` first")
    repeats = [_repeat(options, number, quantised) for number in range(options.repeats)]
    figures = all_figures(repeats)
    write_report(options.out, "engine", figures, about=ABOUT)
    return figures


def quantised_folder() -> Path | None:
    """The default folder of ``scripts/quantize.py`` for SmolLM2 in INT8."""
    folder = ModelStore(default_cache_dir()).folder(quantized_source(SOURCE, INT8))
    return folder if folder.is_dir() else None


def _repeat(options: Options, number: int, quantised: Path | None) -> Repeat:
    folder = model_folder()
    seed = number
    servers: dict[str, Callable[[], Measured]] = {
        CHUNKED: lambda: _chunked(folder, seed, quick=options.quick),
        WHOLE: lambda: _whole(folder, seed, quick=options.quick),
    }
    if quantised is not None:
        servers[QUANTISED] = lambda: _quantised(folder, quantised, QUICK_ROUNDS if options.quick else ROUNDS)
    return {name: servers[name]() for name in list(servers)[:: options.order(number)]}


def _chunked(folder: Path, seed: int, *, quick: bool) -> Measured:
    with engine_server(folder, CHUNKED_ARGUMENTS) as endpoint:
        return Measured(
            memory=engine_memory(endpoint),
            planned=planned_memory(folder, CHUNKED_ARGUMENTS),
            prefix_shares=prefix_shares(endpoint, seed, 1 if quick else PREFIX_PAIRS),
            meeting=meeting(endpoint, seed, quick=quick),
        )


def _whole(folder: Path, seed: int, *, quick: bool) -> Measured:
    with engine_server(folder, WHOLE_ARGUMENTS) as endpoint:
        memory = engine_memory(endpoint)
        ask(endpoint, PROMPTS[:1], WARM_TOKENS)
        return Measured(
            memory, planned_memory(folder, WHOLE_ARGUMENTS), meeting=meeting(endpoint, seed, quick=quick)
        )


def _quantised(folder: Path, quantised: Path, rounds: int) -> Measured:
    with (
        engine_server(folder, CHUNKED_ARGUMENTS, name="bf16") as bf16,
        engine_server(quantised, CHUNKED_ARGUMENTS, name=QUANTISED) as int8,
    ):
        memory = engine_memory(int8)
        answers, bf16_answers = in_turns(int8, bf16, rounds)
        planned = planned_memory(quantised, CHUNKED_ARGUMENTS)
        return Measured(memory, planned, answers=answers, bf16_answers=bf16_answers)


# ---- what is measured ------------------------------------------------------------------------------------


def in_turns(one: Endpoint, other: Endpoint, rounds: int) -> tuple[tuple[Answer, ...], tuple[Answer, ...]]:
    """The answers of both servers to the same prompts, one stream at a time, after a warm-up; the order
    alternates."""
    found: dict[str, list[Answer]] = {one.url: [], other.url: []}
    for endpoint in (one, other):
        ask(endpoint, PROMPTS[:1], WARM_TOKENS)
    for number in range(rounds):
        for endpoint in (one, other)[:: -1 if number % 2 else 1]:
            time.sleep(REST_S)
            found[endpoint.url] += ask(endpoint, PROMPTS, TOKENS)
    return tuple(found[one.url]), tuple(found[other.url])


def tpot_s(answers: Sequence[Answer]) -> float:
    return median(answer.tpot_s for answer in answers)


def prefix_shares(endpoint: Endpoint, seed: int, pairs: int) -> tuple[float, ...]:
    """The shares of pairs of requests with one prefix; different pairs share nothing."""
    chance = random.Random(seed)
    shares = []
    for _ in range(pairs):
        prefix = chance.choices(VOCABULARY, k=PREFIX_TOKENS)
        prompts = [prefix + chance.choices(VOCABULARY, k=QUESTION_TOKENS) for _ in range(2)]
        first, second = ask(endpoint, prompts, 2)
        shares.append(second.ttft_s / first.ttft_s)
    return tuple(shares)


def meeting(endpoint: Endpoint, seed: int, *, quick: bool) -> Meeting:
    """Run streams, and after ``LONG_AFTER_S`` a long prompt beside them.

    Raises:
        PeerError: a request failed, or no stream was running while the prompt was read.
    """
    chance = random.Random(1000 + seed)
    short = [greedy(chance.choices(VOCABULARY, k=QUESTION_TOKENS), STREAM_TOKENS) for _ in range(STREAMS)]
    count = QUICK_LONG_TOKENS if quick else LONG_TOKENS
    long = greedy(chance.choices(VOCABULARY, k=count), LONG_ANSWER_TOKENS)
    arrivals = [*((0.0, request) for request in short), (LONG_AFTER_S, long)]
    samples = run_fast(open_loop(endpoint.url, arrivals, limit_s=LOAD_LIMIT_S))
    *streams, arrived = map(answer_of, samples)
    gaps = touched_gaps(streams, arrived.sent_s, arrived.sent_s + arrived.ttft_s)
    if not gaps:
        raise PeerError(f"no stream ran beside the long prompt: send it before {LONG_AFTER_S:g} s")
    return Meeting(gaps, arrived.ttft_s)


def touched_gaps(streams: Sequence[Answer], begin_s: float, end_s: float) -> tuple[float, ...]:
    """Gaps between tokens that overlap the time from ``begin_s`` to ``end_s``."""
    return tuple(
        later - sooner
        for stream in streams
        for sooner, later in pairwise(stream.chunks_s)
        if later > begin_s and sooner < end_s
    )


def planned_memory(folder: Path, arguments: Mapping[str, Any], *, kv_cache_gib: int = 1) -> EngineMemory:
    """The memory that ``promptly plan`` gives for a CPU engine with these arguments."""
    engine = {"accelerator": "cpu", "cpu_kv_cache_gib": kv_cache_gib, **arguments}
    settings = Settings.model_validate({"models": [{"id": MODEL, "source": str(folder), "engine": engine}]})
    library = ModelLibrary(ModelStore(default_cache_dir()), offline=True)
    (plan,), _ = plan_applications([settings], library, Hardware())
    return EngineMemory(plan.memory.tokens or 0, round(plan.memory.weights), 0)


# ---- figures ---------------------------------------------------------------------------------------------


def all_figures(repeats: Sequence[Repeat]) -> list[Figure]:
    """The targets first, then the figures that they come from."""
    return [
        *prefix_figures([repeat[CHUNKED].prefix_shares for repeat in repeats]),
        *meeting_figures([(_met(repeat[CHUNKED]), _met(repeat[WHOLE])) for repeat in repeats]),
        *quantised_figures([repeat for repeat in repeats if QUANTISED in repeat]),
        *plan_figures(repeats),
    ]


def _met(measured: Measured) -> Meeting:
    if measured.meeting is None:
        raise PeerError("this server met no long prompt")
    return measured.meeting


def prefix_figures(shares: Sequence[Sequence[float]]) -> list[Figure]:
    name = f"TTFT of a second request with the same {PREFIX_TOKENS:,} tokens, over the first's"
    return [Figure(name, "×", tuple(map(median, shares)), at_most(0.35))]


def meeting_figures(pairs: Sequence[tuple[Meeting, Meeting]]) -> list[Figure]:
    """Figures of the streams beside a long prompt, chunked and whole."""
    name = f"ITL p99 of {STREAMS} streams beside a prompt of {LONG_TOKENS:,} tokens"
    chunked = tuple(itl_p99_ms(chunked) for chunked, _ in pairs)
    whole = tuple(itl_p99_ms(whole) for _, whole in pairs)
    ratios = tuple(few / one for few, one in zip(chunked, whole, strict=True))
    return [
        Figure(f"{name}, chunked over whole", "×", ratios, at_most(0.5)),
        Figure(name, "ms", chunked, series=CHUNKED),
        Figure(name, "ms", whole, series=WHOLE),
        Figure("TTFT of that prompt", "s", tuple(each.ttft_s for each, _ in pairs), series=CHUNKED),
        Figure("TTFT of that prompt", "s", tuple(each.ttft_s for _, each in pairs), series=WHOLE),
    ]


def itl_p99_ms(meeting: Meeting) -> float:
    return percentile(meeting.gaps_s, 99) * 1000


def quantised_figures(repeats: Sequence[Repeat]) -> list[Figure]:
    """Figures of INT8 against bf16; empty where no model was quantised."""
    if not repeats:
        return []
    pairs = [(repeat[QUANTISED].bf16_answers, repeat[QUANTISED].answers) for repeat in repeats]
    ratios = tuple(tpot_s(int8) / tpot_s(bf16) for bf16, int8 in pairs)
    equal = tuple(
        agreement([each.token_ids for each in bf16], [each.token_ids for each in int8])
        for bf16, int8 in pairs
    )
    return [
        Figure("TPOT, INT8 over bf16", "×", ratios, at_most(0.999)),
        Figure("TPOT", "ms", tuple(tpot_s(bf16) * 1000 for bf16, _ in pairs), series="bf16"),
        Figure("TPOT", "ms", tuple(tpot_s(int8) * 1000 for _, int8 in pairs), series=QUANTISED),
        Figure("greedy tokens before INT8 first differs from bf16", "share", equal),
    ]


def plan_figures(repeats: Sequence[Repeat]) -> list[Figure]:
    """The error of the plan, relative to what each engine reports."""
    figures = []
    for name in dict.fromkeys(name for repeat in repeats for name in repeat):
        servers = [repeat[name] for repeat in repeats if name in repeat]
        tokens = tuple(off(each.planned.kv_tokens, each.memory.kv_tokens) for each in servers)
        weights = tuple(
            off(each.planned.weights, each.memory.weights + each.memory.copies) for each in servers
        )
        figures += [
            Figure("plan's KV tokens, off by", "%", tokens, at_most(10), series=name),
            Figure("plan's weights, off by", "%", weights, at_most(10), series=name),
        ]
    return figures


def off(planned: float, found: float) -> float:
    """The error in percent of the true value."""
    return abs(planned - found) / found * 100
