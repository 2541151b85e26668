"""What n-gram speculation gives on Spec-Bench's prompts, and what the guard saves where it gives nothing.

SmolLM2 135M on this machine's CPUs, vLLM's server with the arguments that Promptly passes it: without
speculation, with it, and with it under the guard. The three run at once and are asked one at a time, task by
task, in turns of opposite order, so that a machine that changes its pace changes it for all. An answer is a
greedy chat of at most ``TOKENS`` tokens: longer ones of so small a model repeat themselves, which flatters
n-grams. Each prompt is asked once before it counts, which leaves its prefix in the cache.

A step that checks k drafted tokens computes 1 + k. What that costs here is measured too: the time between
tokens of as many streams that decode together.
"""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.engine_server import LOAD_LIMIT_S, MODEL, Answer, answer_of, ask, engine_server, get
from benchmarks.load import Request, closed_loop, run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint, PeerError
from benchmarks.peers.vllm_server import ENGINE_ARGUMENTS
from benchmarks.table import Figure, at_most, plot_bars, write_report
from benchmarks.vllm_load import SOURCE, model_folder
from deployments.machine import this_machine
from deployments.vllm_arguments import GUARDED_SCHEDULER

PROMPTS = Path(__file__).parents[3] / "shared" / "data" / "traces" / "prompts_specbench.jsonl"
TASKS = ("summarization", "rag", "translation", "math_reasoning", "qa", "mt_bench")
PAYS = ("summarization", "rag")
"""Tasks whose answers quote their prompts."""

NONE, PLAIN, GUARDED = "none", "n-gram", "n-gram, guarded"
SPECULATION: Mapping[str, Any] = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 1,
}
COUNT, TOKENS = 6, 64
"""Prompts of a task, and the most tokens of an answer."""

QUICK_COUNT, QUICK_TOKENS = 1, 16
STEP_STREAMS = (2, 3, 5)
STEP_TOKENS = 48
REST_S = 0.2
"""Before another server is asked: the last one's threads wait for their next step a while."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One task on one server."""

    answers: tuple[Answer, ...]
    drafted: float
    accepted: float

    @property
    def tpot_s(self) -> float:
        """Over all tokens after the first of each answer."""
        tokens = sum(len(answer.token_ids) - 1 for answer in self.answers)
        seconds = sum(answer.tpot_s * (len(answer.token_ids) - 1) for answer in self.answers)
        return seconds / tokens if tokens else math.nan

    @property
    def texts(self) -> tuple[tuple[int, ...], ...]:
        return tuple(answer.token_ids for answer in self.answers)


Repeat = dict[tuple[str, str], Turn]
"""By task and server."""


def run(options: Options, prompts: Path = PROMPTS) -> list[Figure]:
    """Raises: PeerError: the prompts are not there, or a server failed."""
    if not prompts.is_file():
        raise PeerError(f"speculation: {prompts} is missing; give the path of Spec-Bench's questions")
    texts = read_prompts(prompts, QUICK_COUNT if options.quick else COUNT)
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(engine_server(model_folder(), arguments, name=name))
            for name, arguments in engines().items()
        }
        repeats, steps = measure(servers, texts, options)
    figures = all_figures(repeats, steps)
    about = {
        "engine": f"{SOURCE}, CPU, " + ", ".join(f"{name} {value}" for name, value in base().items()),
        "speculation": ", ".join(f"{name} {value}" for name, value in SPECULATION.items()),
        "load": f"{len(texts[TASKS[0]])} prompts of each task, one at a time, at most {TOKENS} tokens",
    }
    write_report(options.out, "speculation", figures, about=about)
    shown = [figure for figure in figures if figure.unit == "ms" and figure.series in (NONE, PLAIN, GUARDED)]
    plot_bars(options.out / "speculation.png", "Time per output token", shown)
    return figures


def read_prompts(path: Path, count: int) -> dict[str, list[str]]:
    """The first ``count`` questions of each task (their first turns)."""
    found: dict[str, list[str]] = {task: [] for task in TASKS}
    with path.open(encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            texts = found.get(line["task"])
            if texts is not None and len(texts) < count:
                texts.append(line["turns"][0])
    return found


def base() -> dict[str, Any]:
    """In float32 where the CPU has no instructions for bfloat16 and would convert every number of a step."""
    machine = this_machine()
    is_fast = machine is not None and machine.has_bf16_units
    return {**ENGINE_ARGUMENTS, "dtype": "bfloat16" if is_fast else "float32"}


def engines() -> dict[str, dict[str, Any]]:
    """Engine arguments by server."""
    plain = base() | {"speculative_config": json.dumps(SPECULATION)}
    return {NONE: base(), PLAIN: plain, GUARDED: plain | {"scheduler_cls": GUARDED_SCHEDULER}}


# ---- measuring -------------------------------------------------------------------------------------------


def measure(
    servers: Mapping[str, Endpoint], texts: Mapping[str, Sequence[str]], options: Options
) -> tuple[list[Repeat], list[dict[int, float]]]:
    """Every task on every server, and the times of steps (milliseconds by tokens), once each repeat."""
    tokens = QUICK_TOKENS if options.quick else TOKENS
    repeats: list[Repeat] = [{} for _ in range(options.repeats)]
    for task in TASKS:
        for endpoint in servers.values():  # its prefixes, and the guard on text of this kind
            turn(endpoint, texts[task], tokens)
        for number, repeat in enumerate(repeats):
            for name, endpoint in list(servers.items())[:: options.order(number)]:
                repeat[task, name] = turn(endpoint, texts[task], tokens)
    return repeats, [step_times(servers[NONE], number) for number in range(options.repeats)]


def turn(endpoint: Endpoint, texts: Sequence[str], tokens: int) -> Turn:
    """The prompts of a task, one after the other.

    Raises:
        PeerError: one failed.
    """
    time.sleep(REST_S)
    before = counters(get(endpoint.url, "/metrics"))
    samples = run_fast(
        closed_loop(endpoint.url, [chat(text, tokens) for text in texts], 1, limit_s=LOAD_LIMIT_S)
    )
    after = counters(get(endpoint.url, "/metrics"))
    answers = tuple(answer_of(sample) for sample in samples)
    return Turn(answers, after[0] - before[0], after[1] - before[1])


def chat(text: str, tokens: int) -> Request:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
    }
    return Request("/v1/chat/completions", json.dumps(body).encode(), keep_body=True)


def counters(metrics: str) -> tuple[float, float]:
    """Tokens drafted and accepted since the start; zeros without speculation."""
    return tuple(  # type: ignore[return-value]
        sum(map(float, re.findall(rf"^vllm:spec_decode_num_{name}_tokens_total{{.*}} (\S+)$", metrics, re.M)))
        for name in ("draft", "accepted")
    )


def step_times(endpoint: Endpoint, seed: int) -> dict[int, float]:
    """Milliseconds of a step by the tokens that it computes: as many streams decode one each."""
    choose = random.Random(seed)
    times = {}
    for streams in (1, *STEP_STREAMS):
        time.sleep(REST_S)
        prompts = [[choose.randrange(100, 40_000) for _ in range(16)] for _ in range(streams)]
        answers = ask(endpoint, prompts, STEP_TOKENS, streams=streams)
        times[streams] = 1000 * median(answer.tpot_s for answer in answers)
    return times


# ---- figures ---------------------------------------------------------------------------------------------


def all_figures(repeats: Sequence[Repeat], steps: Sequence[Mapping[int, float]]) -> list[Figure]:
    """The targets, what they are made of, and what explains them."""
    worst = max(TASKS, key=lambda task: median(ratios(repeats, (task,), GUARDED)))
    paying, losing = "TPOT, summarization and rag, × none", f"TPOT, worst task ({worst}), × none"
    return [
        Figure(paying, "×", ratios(repeats, PAYS, GUARDED), at_most(0.67), GUARDED),
        Figure(paying, "×", ratios(repeats, PAYS, PLAIN), series=PLAIN),
        Figure(losing, "×", ratios(repeats, (worst,), GUARDED), at_most(1.03), GUARDED),
        Figure(losing, "×", ratios(repeats, (worst,), PLAIN), series=PLAIN),
        *_of_tasks(repeats),
        *_of_steps(steps),
    ]


def ratios(repeats: Sequence[Repeat], tasks: Sequence[str], name: str) -> tuple[float, ...]:
    """TPOT over that without speculation, of each repeat; the tasks count alike."""
    return tuple(
        sum(repeat[task, name].tpot_s for task in tasks) / sum(repeat[task, NONE].tpot_s for task in tasks)
        for repeat in repeats
    )


def _of_tasks(repeats: Sequence[Repeat]) -> Iterator[Figure]:
    for task in TASKS:
        for name in (NONE, PLAIN, GUARDED):
            turns = [repeat[task, name] for repeat in repeats]
            yield Figure(f"TPOT, {task}", "ms", tuple(1000 * each.tpot_s for each in turns), series=name)
        for name in (PLAIN, GUARDED):
            turns = [repeat[task, name] for repeat in repeats]
            yield Figure(f"× none, {task}", "×", ratios(repeats, (task,), name), series=name)
            yield Figure(f"drafted a token, {task}", "", tuple(map(_drafted_a_token, turns)), series=name)
            yield Figure(f"acceptance, {task}", "%", tuple(map(_acceptance, turns)), series=name)
            same = tuple(_same(repeat[task, name], repeat[task, NONE]) for repeat in repeats)
            yield Figure(f"answers like none's, {task}", "%", same, series=name)


def _of_steps(steps: Sequence[Mapping[int, float]]) -> Iterator[Figure]:
    yield Figure("step of 1 token", "ms", tuple(times[1] for times in steps))
    for tokens in STEP_STREAMS:
        yield Figure(f"step of {tokens} tokens, × of 1", "×", tuple(each[tokens] / each[1] for each in steps))


def _drafted_a_token(turn: Turn) -> float:
    return turn.drafted / sum(len(answer.token_ids) for answer in turn.answers)


def _acceptance(turn: Turn) -> float:
    """Percent of the drafted tokens; nothing was accepted where nothing was drafted."""
    return 100 * turn.accepted / turn.drafted if turn.drafted else 0.0


def _same(turn: Turn, other: Turn) -> float:
    """Percent of the answers whose tokens are equal."""
    pairs = list(zip(turn.texts, other.texts, strict=True))
    return 100 * sum(a == b for a, b in pairs) / len(pairs)
