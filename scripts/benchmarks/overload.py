"""Five times the engine's capacity for a minute: admitted requests stay fast, the others are refused at once.

One scripted engine with 8 slots and answers of one second serves 8 requests a second; 40 a second arrive
(Poisson, fixed seed). A request is admitted if it would wait at most ``MAX_QUEUE_WAIT_S``.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.engines import scripted_engine
from benchmarks.layer import settings_for
from benchmarks.load import Sample, chat_request, closed_loop, open_loop, percentile, poisson, run_fast
from benchmarks.options import Options
from benchmarks.peers import promptly
from benchmarks.table import Figure, at_least, at_most, write_report

MODEL = "scripted"
SLOTS, TOKENS, ITL_MS = 8, 50, 20.0
CAPACITY_PER_S = SLOTS / (TOKENS * ITL_MS / 1000)
OVERLOAD = 5
DURATION_S = 60.0
MAX_QUEUE_WAIT_S = 2.0


def run(options: Options) -> list[Figure]:
    limits = {"max_queue_wait_s": MAX_QUEUE_WAIT_S}
    duration_s = 6.0 if options.quick else DURATION_S
    runs: list[list[Sample]] = []
    for repeat in range(options.repeats):
        with (
            scripted_engine(MODEL, TOKENS, ITL_MS, SLOTS) as engine,
            promptly(settings_for(engine.url, limits=limits, max_requests=SLOTS)) as endpoint,
        ):
            question = [chat_request(MODEL, f"Question {number}.", TOKENS) for number in range(4 * SLOTS)]
            run_fast(closed_loop(endpoint.url, question, SLOTS))  # the gateway learns how fast the engine is
            rate = OVERLOAD * CAPACITY_PER_S
            count = round(rate * duration_s)
            requests = [chat_request(MODEL, f"Overload {number}.", TOKENS) for number in range(count)]
            runs.append(run_fast(open_loop(endpoint.url, poisson(requests, rate, seed=repeat))))
    figures = all_figures(runs, duration_s)
    about = {
        "engine": f"{SLOTS} slots, {TOKENS} tokens of {ITL_MS:g} ms: {CAPACITY_PER_S:g} requests/s",
        "load": f"{OVERLOAD * CAPACITY_PER_S:g} requests/s for {duration_s:g} s, Poisson",
        "queue limit": f"{MAX_QUEUE_WAIT_S:g} s",
    }
    write_report(options.out, "overload", figures, about=about)
    return figures


def all_figures(runs: Sequence[Sequence[Sample]], duration_s: float) -> list[Figure]:
    limit_ms = 2 * MAX_QUEUE_WAIT_S * 1000
    return [
        Figure("TTFT p99 of the admitted", "ms", tuple(ttft_p99_ms(run) for run in runs), at_most(limit_ms)),
        Figure("time to a 429, p99", "ms", tuple(refusal_p99_ms(run) for run in runs), at_most(50)),
        Figure("errors", "", tuple(float(sum(s.failed for s in run)) for run in runs), at_most(0)),
        Figure(
            "answers per second over capacity",
            "×",
            tuple(sum(s.ok for s in run) / duration_s / CAPACITY_PER_S for run in runs),
            at_least(0.9),
        ),
        Figure("share admitted", "", tuple(sum(s.ok for s in run) / len(run) for run in runs)),
        Figure("Retry-After, median", "s", tuple(retry_after_s(run) for run in runs)),
    ]


def ttft_p99_ms(run: Sequence[Sample]) -> float:
    return percentile((s.ttft_s * 1000 for s in run if s.ok and s.ttft_s is not None), 99)


def refusal_p99_ms(run: Sequence[Sample]) -> float:
    return percentile(((s.ended_at - s.sent_at) * 1000 for s in run if s.status == 429), 99)


def retry_after_s(run: Sequence[Sample]) -> float:
    return percentile((float(s.headers["retry-after"]) for s in run if s.status == 429), 50)
