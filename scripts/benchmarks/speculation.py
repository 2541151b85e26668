"""The gain of speculation from text on Spec-Bench's prompts, and what the guard saves.

SmolLM2 135M runs on this machine's CPUs, in vLLM's server with the arguments that Promptly passes it: without
speculation, with n-grams, and with n-grams and suffixes under the guard. All servers run at once and are
asked one at a time, task by task, in alternating order, so that changes of the machine's speed affect all.
The type is float32: in 16 bits a step of several tokens rounds differently from a step of one, and answers
soon differ.

An answer is a greedy chat of at most ``TOKENS`` tokens. The longer the answer of such a small model, the more
it repeats itself, which favours these drafts. So tasks with a target are also asked for at most
``SHORT_TOKENS``. Each prompt is asked for a few tokens before it counts, which leaves its prefix in the
cache. Suffixes are looked up in the request's own text only; in production earlier answers are used as well.

A step that checks k drafted tokens computes 1 + k tokens. The cost of this is measured, too: it is the time
between tokens of 1 + k streams that decode together.
"""

from __future__ import annotations

import importlib.util
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

from benchmarks.engine_server import LOAD_LIMIT_S, MODEL, REST_S, Answer, answer_of, ask, engine_server, get
from benchmarks.load import Request, closed_loop, run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint, PeerError
from benchmarks.peers.vllm_server import ENGINE_ARGUMENTS
from benchmarks.table import Figure, at_most, plot_bars, write_report
from benchmarks.vllm_load import SOURCE, model_folder
from deployments.engine.vllm.arguments import GUARDED_SCHEDULER, SUFFIX_PACKAGE

PROMPTS = Path(__file__).parents[3] / "shared" / "data" / "traces" / "prompts_specbench.jsonl"
TASKS = ("summarization", "rag", "translation", "math_reasoning", "qa", "mt_bench")
PAYS = ("summarization", "rag")
"""Tasks whose answers quote their prompts."""

NO_SUFFIX: Mapping[str, Any] = {"not measured": "arctic-inference is not installed"}

BASE: dict[str, Any] = {**ENGINE_ARGUMENTS, "dtype": "float32"}
NONE, PLAIN, GUARDED, SUFFIX = "none", "n-gram", "n-gram, guarded", "suffix, guarded"
NGRAM_SPECULATION: Mapping[str, Any] = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 1,
}
SUFFIX_SPECULATION: Mapping[str, Any] = {
    "method": "suffix",
    "num_speculative_tokens": 8,
    "suffix_decoding_max_spec_factor": 2.0,
    "suffix_decoding_max_cached_requests": 0,
}
"""No earlier answers are used, because the same prompts are asked repeatedly here."""

COUNT, TOKENS, SHORT_TOKENS = 4, 256, 64
"""The number of prompts of a task, and the most tokens of an answer and of a short answer."""

QUICK_COUNT, QUICK_TOKENS = 1, 16
WARM_UP_TOKENS = 16
STEP_STREAMS = (2, 3, 5)
STEP_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Turn:
    """One task on one server."""

    answers: tuple[Answer, ...]
    drafted: float
    accepted: float

    @property
    def tpot_s(self) -> float:
        """The mean over all tokens after the first one of each answer."""
        tokens = sum(len(answer.token_ids) - 1 for answer in self.answers)
        seconds = sum(answer.tpot_s * (len(answer.token_ids) - 1) for answer in self.answers)
        return seconds / tokens if tokens else math.nan

    @property
    def texts(self) -> tuple[tuple[int, ...], ...]:
        return tuple(answer.token_ids for answer in self.answers)


Repeat = dict[tuple[str, str], Turn]
"""The results of one repeat, by case and server."""


@dataclass(frozen=True, slots=True)
class Case:
    """The prompts of one task, and the most tokens of an answer."""

    texts: Sequence[str]
    tokens: int


def run(options: Options, prompts: Path = PROMPTS) -> list[Figure]:
    """Raises: PeerError: the prompts are missing, or a server failed."""
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
    drafts = {"n-gram": NGRAM_SPECULATION, "suffix": SUFFIX_SPECULATION if has_suffix() else NO_SUFFIX}
    about = {
        "engine": f"{SOURCE}, CPU, " + ", ".join(f"{name} {value}" for name, value in BASE.items()),
        **{name: ", ".join(f"{key} {value}" for key, value in each.items()) for name, each in drafts.items()},
        "load": f"{len(texts[TASKS[0]])} prompts of each task, one at a time, at most {TOKENS} tokens",
    }
    write_report(options.out, "speculation", figures, about=about)
    shown = [figure for figure in figures if figure.unit == "ms" and figure.series]
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


def engines() -> dict[str, dict[str, Any]]:
    """Engine arguments by server."""
    guard = {"scheduler_cls": GUARDED_SCHEDULER}
    ngram = BASE | {"speculative_config": json.dumps(NGRAM_SPECULATION)}
    suffix = BASE | {"speculative_config": json.dumps(SUFFIX_SPECULATION)}
    found = {NONE: BASE, PLAIN: ngram, GUARDED: ngram | guard}
    return found | ({SUFFIX: suffix | guard} if has_suffix() else {})


def has_suffix() -> bool:
    """Whether the package that drafts suffixes is installed."""
    return importlib.util.find_spec(SUFFIX_PACKAGE) is not None


def cases(texts: Mapping[str, Sequence[str]], options: Options) -> dict[str, Case]:
    """The cases by name: each task, and tasks with a target again with short answers."""
    long, short = (QUICK_TOKENS, QUICK_TOKENS) if options.quick else (TOKENS, SHORT_TOKENS)
    return {task: Case(texts[task], long) for task in TASKS} | {
        shortened(task): Case(texts[task], short) for task in PAYS
    }


def shortened(task: str) -> str:
    """The name of the case with short answers."""
    return f"{task}, at most {SHORT_TOKENS} tokens"


# ---- measuring -------------------------------------------------------------------------------------------


def measure(
    servers: Mapping[str, Endpoint], texts: Mapping[str, Sequence[str]], options: Options
) -> tuple[list[Repeat], list[dict[int, float]]]:
    """Measure every case on every server, and the times of steps (milliseconds by number of tokens), both
    once per repeat."""
    repeats: list[Repeat] = [{} for _ in range(options.repeats)]
    for case_name, case in cases(texts, options).items():
        for endpoint in servers.values():  # this caches the prefixes, and shows the guard such texts
            turn(endpoint, case.texts, WARM_UP_TOKENS)
        for number, repeat in enumerate(repeats):
            for name, endpoint in list(servers.items())[:: options.order(number)]:
                repeat[case_name, name] = turn(endpoint, case.texts, case.tokens)
    return repeats, [step_times(servers[NONE], number) for number in range(options.repeats)]


def turn(endpoint: Endpoint, texts: Sequence[str], tokens: int) -> Turn:
    """Ask the prompts of a case one after the other.

    Raises:
        PeerError: a request failed.
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
    """Milliseconds of a step by the number of tokens that it computes, measured with that many streams that
    decode together."""
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
    """The targets, the figures that they come from, and figures that explain them."""
    servers = [name for name in (PLAIN, GUARDED, SUFFIX) if (TASKS[0], name) in repeats[0]]
    return [*_paying(repeats, servers), *_losing(repeats, servers), *_of_cases(repeats), *_of_steps(steps)]


def _paying(repeats: Sequence[Repeat], servers: Sequence[str]) -> Iterator[Figure]:
    """Figures of tasks whose answers quote their prompts. The last server has the target: the one with
    suffixes, if that package is installed."""
    for name in servers[::-1]:
        target = at_most(0.67) if name == servers[-1] else None
        yield Figure("TPOT, summarization and rag, × none", "×", ratios(repeats, PAYS, name), target, name)
    short = [shortened(task) for task in PAYS]
    for name in servers[::-1]:
        found = ratios(repeats, short, name)
        yield Figure(f"the same, at most {SHORT_TOKENS} tokens", "×", found, series=name)


def _losing(repeats: Sequence[Repeat], servers: Sequence[str]) -> Iterator[Figure]:
    """The figures of each server's worst task."""
    for name in servers[::-1]:
        worst = max(TASKS, key=lambda task: median(ratios(repeats, (task,), name)))
        target = None if name == PLAIN else at_most(1.03)
        found = ratios(repeats, (worst,), name)
        yield Figure(f"TPOT, worst task ({worst}), × none", "×", found, target, name)


def ratios(repeats: Sequence[Repeat], cases: Sequence[str], name: str) -> tuple[float, ...]:
    """The TPOT divided by the one without speculation, for each repeat; all cases count equally."""
    return tuple(
        sum(repeat[case, name].tpot_s for case in cases) / sum(repeat[case, NONE].tpot_s for case in cases)
        for repeat in repeats
    )


def _of_cases(repeats: Sequence[Repeat]) -> Iterator[Figure]:
    for case, name in repeats[0]:
        turns = [repeat[case, name] for repeat in repeats]
        yield Figure(f"TPOT, {case}", "ms", tuple(1000 * each.tpot_s for each in turns), series=name)
        if name == NONE:
            continue
        yield Figure(f"× none, {case}", "×", ratios(repeats, (case,), name), series=name)
        yield Figure(f"drafted a token, {case}", "", tuple(map(_drafted_a_token, turns)), series=name)
        yield Figure(f"acceptance, {case}", "%", tuple(map(_acceptance, turns)), series=name)
        same = tuple(_same(repeat[case, name], repeat[case, NONE]) for repeat in repeats)
        yield Figure(f"answers like none's, {case}", "%", same, series=name)


def _of_steps(steps: Sequence[Mapping[int, float]]) -> Iterator[Figure]:
    yield Figure("step of 1 token", "ms", tuple(times[1] for times in steps))
    for tokens in STEP_STREAMS:
        yield Figure(f"step of {tokens} tokens, × of 1", "×", tuple(each[tokens] / each[1] for each in steps))


def _drafted_a_token(turn: Turn) -> float:
    return turn.drafted / sum(len(answer.token_ids) for answer in turn.answers)


def _acceptance(turn: Turn) -> float:
    """Percent of drafted tokens that were accepted; 0 without drafts."""
    return 100 * turn.accepted / turn.drafted if turn.drafted else 0.0


def _same(turn: Turn, other: Turn) -> float:
    """Percent of the answers whose tokens are equal."""
    pairs = list(zip(turn.texts, other.texts, strict=True))
    return 100 * sum(a == b for a, b in pairs) / len(pairs)
