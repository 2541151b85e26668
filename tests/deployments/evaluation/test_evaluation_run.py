"""Runs against scripted engines over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from sim_engine import Faults, SimSettings
from support.sim import running

from deployments.evaluation.command import Asked, evaluated, silent
from deployments.evaluation.runner import Plan, Run, RunError
from deployments.evaluation.services import HttpServices, Place
from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Assertion, Case
from serve_app.evaluation.report import Choices, Report
from serve_app.evaluation.target import Target, TargetError
from serve_app.evaluation.verdict import Verdict

FAST = SimSettings(itl_ms=0.5, tokens=4)
ANY_TEXT = Assertion("regex", {"pattern": "."})
JUDGE = Place("--judge", "judge", "http://127.0.0.1:9")


def cases(count: int, *assertions: Assertion) -> list[Case]:
    return [
        Case(f"case-{number}", ({"role": "user", "content": f"Question {number}"},), assertions=assertions)
        for number in range(count)
    ]


def asked(
    given: Sequence[Case], candidate: str, baseline: str | None = None, repeats: int = 1, **more: Any
) -> Asked:
    targets = [Target("candidate", "sim", candidate)]
    if baseline is not None:
        targets.insert(0, Target("baseline", "sim", baseline))
    return Asked("suite", targets, Plan(given, repeats), Choices(), limit_s=30.0, **more)


async def report_of(settings: Asked) -> Report:
    return await evaluated(settings, silent)


async def test_two_equal_targets_are_compared_in_every_figure() -> None:
    async with running(FAST) as one, running(FAST) as two:
        report = await report_of(asked(cases(30, ANY_TEXT), two.url, one.url, repeats=2))
        assert (one.engine.stats().requests, two.engine.stats().requests) == (61, 61)  # one warms up
    rows = {row.key: row for row in report.rows}
    assert report.pairs == report.planned == 60
    assert rows["score"].candidate.estimate == 1.0
    assert rows["output_tokens"].change is not None
    for name in ("ttft", "itl", "e2e"):
        change = rows[name].change
        assert change is not None
        assert change.low < change.estimate < change.high
    assert report.verdicts["quality"] == Verdict.UNDECIDED  # too few cases to exclude a loss of 3 points


async def test_a_slow_candidate_is_worse_in_latency() -> None:
    async with running(FAST) as one, running(SimSettings(itl_ms=15.0, tokens=4)) as two:
        report = await report_of(asked(cases(24), two.url, one.url))
    assert report.verdicts == {"latency": Verdict.WORSE}  # nothing decides about the answers
    assert report.status == 1


async def test_a_candidate_that_fails_half_its_requests_is_worse_and_the_report_says_so() -> None:
    failing = Faults(status=500, share=0.5)
    async with running(FAST) as one, running(FAST, failing) as two:
        report = await report_of(asked(cases(40, ANY_TEXT), two.url, one.url))
    failed = report.sides[1].failed
    assert 5 < failed < 35
    assert report.verdicts["quality"] == Verdict.WORSE
    assert report.status == 1
    assert f"candidate failed {failed} of 40 requests" in report.notes[0]
    assert "status 500: A simulated failure." in report.notes[0]  # the server's own message


@pytest.mark.parametrize("fault", [Faults(refuse=True), Faults(garbage="json"), Faults(die_after=1)])
async def test_a_candidate_that_is_down_ends_the_run_at_once(fault: Faults) -> None:
    async with running(FAST) as one, running(FAST, fault) as two:
        with pytest.raises(RunError, match=r"candidate sim at http://.* failed all of its first 5 requests"):
            await report_of(asked(cases(200), two.url, one.url))
        assert one.engine.stats().requests < 10


async def test_a_baseline_that_fails_leaves_nothing_to_compare_with() -> None:
    """All but its first requests."""
    breaking: list[asyncio.Future[None]] = []
    async with running(FAST) as one, running(FAST) as two:
        run = asked(cases(40, ANY_TEXT), two.url, one.url)

        def break_later(_: str, done: int, __: int) -> None:
            if done == 1:
                breaking.append(asyncio.ensure_future(one.engine.set_faults(Faults(status=503))))

        report = await evaluated(run, break_later)
        await asyncio.gather(*breaking)
    assert report.status == 2
    assert "requests (first: status 503" in str(report.unusable)
    assert str(report.unusable).startswith("baseline sim failed 3")


async def test_an_answer_that_never_ends_counts_as_a_failure() -> None:
    async with running(FAST, Faults(hang_after=1, times=2)) as one:
        settings = asked(cases(6), one.url)
        settings = Asked("suite", settings.targets, Plan(cases(6), warm_up=0), Choices(), limit_s=0.5)
        report = await report_of(settings)
    assert report.sides[0].failed == 2
    assert report.sides[0].first_error == "no answer within 0.5 s"


async def test_requests_bypass_the_cache_and_carry_the_key_of_their_own_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANDIDATE_KEY", "sesame")
    seen: list[web.Request] = []
    async with answering(seen, {"choices": [{"message": {"content": "Hi"}}], "usage": {}}) as url:
        one, two = Target("baseline", "a", url), Target("candidate", "b", url + "/v1", "CANDIDATE_KEY")
        report = await report_of(Asked("suite", [one, two], Plan(cases(3)), Choices()))
    assert report.sides[1].failed == 0
    assert {request.headers["cache-control"] for request in seen} == {"no-cache, no-store"}
    keys = {request.headers.get("authorization") for request in seen}
    assert keys == {None, "Bearer sesame"}
    assert {request.path for request in seen} == {"/v1/chat/completions"}


async def test_an_answer_out_of_the_cache_is_refused() -> None:
    async with answering([], {"choices": []}, {"x-cache": "semantic"}) as url:
        with pytest.raises(RunError, match="the cache answered"):
            await report_of(asked(cases(9), url))


async def test_a_key_that_is_not_set_is_named_before_anything_is_asked() -> None:
    targets = [Target("candidate", "b", "http://127.0.0.1:9", "NO_SUCH_KEY")]
    with pytest.raises(TargetError, match="--candidate-key-env NO_SUCH_KEY: this environment variable"):
        await report_of(Asked("suite", targets, Plan(cases(3)), Choices()))


async def test_a_stopped_run_reports_what_it_has_and_does_not_pass() -> None:
    client = Stopping()
    run = Run(Plan(cases(50), warm_up=0), [client], Nothing(), silent)
    client.run = run
    pairs = await run.pairs()
    assert len(pairs) == 7
    assert run.planned == 50


# ---- judges ----------------------------------------------------------------------------------------------


async def test_a_judge_that_is_down_ends_the_run_before_it_begins() -> None:
    judged = Assertion("judge", {"criteria": "polite"})
    async with running(FAST) as one:
        settings = asked(cases(20, judged), one.url, judge=JUDGE)
        with pytest.raises(RunError, match=r"judge judge at http://127.0.0.1:9 does not answer"):
            await report_of(settings)
        assert one.engine.stats().requests == 1


async def test_a_suite_for_a_judge_without_one_says_which_option_names_it() -> None:
    judged = Assertion("judge", {"criteria": "polite"})
    async with running(FAST) as one:
        with pytest.raises(RunError, match="--judge-model"):
            await report_of(asked(cases(20, judged), one.url))


async def test_a_judge_that_answers_nonsense_leaves_no_verdict() -> None:
    judged = Assertion("judge", {"criteria": "polite"})
    nonsense = {"choices": [{"message": {"content": "Bananas."}}]}
    async with running(FAST) as one, answering([], nonsense) as url:
        settings = asked(cases(6, judged), one.url, judge=Place("--judge", "judge", url))
        report = await report_of(settings)
    assert report.status == 2
    assert "6 of 6 answers could not be judged" in str(report.unusable)


async def test_an_embedder_is_asked_over_http() -> None:
    body = {"data": [{"embedding": [1.0, 0.0]}, {"embedding": [0.0, 1.0]}]}
    async with answering([], body) as url, aiohttp.ClientSession() as http:
        services = HttpServices(http, None, Place("--embedder", "e", url), 5.0)
        assert await services.embed(["a", "b"]) == [[1.0, 0.0], [0.0, 1.0]]


# ---- what the tests ask ----------------------------------------------------------------------------------


@asynccontextmanager
async def answering(
    seen: list[web.Request], body: Any, headers: dict[str, str] | None = None
) -> AsyncIterator[str]:
    """A server that gives one answer to everything."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        seen.append(request)
        return web.Response(text=json.dumps(body), content_type="application/json", headers=headers)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Nothing:
    """No services."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        raise NotImplementedError

    async def ask_judge(self, messages: Sequence[Any]) -> str:
        raise NotImplementedError


class Stopping:
    """Answers, and stops its run at the seventh question."""

    target = Target("candidate", "m", "http://127.0.0.1:9")
    run: Run

    def __init__(self) -> None:
        self.count = 0

    async def ask(self, case: Case) -> Answer:
        await asyncio.sleep(0)
        self.count += 1
        if self.count == 7:
            self.run.stop()
        return Answer(text="yes", e2e_s=0.1)
