"""Asks the targets, then lets the scorers judge. Judging waits, so that it does not disturb the times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.outcome import Pair, Reply
from serve_app.evaluation.schedule import Turn, turns
from serve_app.evaluation.scorers.base import Services
from serve_app.evaluation.scorers.registry import score_case
from serve_app.evaluation.target import CANDIDATE, Target

FIRST_FAILURES = 5
"""If a target fails all of so many first requests, it is down."""

JUDGED_AT_ONCE = 4

Progress = Callable[[str, int, int], None]
"""What is done, how many are, of how many."""


class RunError(Exception):
    """The run says nothing: a target is down, or nothing can judge. The message names it."""


class Asks(Protocol):
    """A client of one target."""

    @property
    def target(self) -> Target: ...

    async def ask(self, case: Case) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """``concurrency``: pairs in flight. Times are best compared at 1: then nothing of the run disturbs
    another request of it. ``warm_up``: requests to each target that are not counted. ``arrivals``: when
    each case is asked, in seconds from the beginning and in order, whatever is still in flight; without, a
    case is asked when another one has ended."""

    cases: Sequence[Case]
    repeats: int = 1
    concurrency: int = 1
    warm_up: int = 1
    seed: int = 0
    arrivals: Sequence[float] = ()


class Run:
    """One run. ``stop`` ends it early; what was asked until then is kept."""

    def __init__(self, plan: Plan, clients: Sequence[Asks], services: Services, progress: Progress) -> None:
        self._plan = plan
        self._clients = clients
        self._services = services
        self._progress = progress
        self._turns = turns(len(plan.cases), plan.repeats, plan.seed)
        self._pairs: list[Pair] = []
        self._is_stopped = False
        self._stopping = asyncio.Event()

    @property
    def planned(self) -> int:
        return len(self._turns)

    def stop(self) -> None:
        """No turn begins after this; those that have begun are finished."""
        self._is_stopped = True
        self._stopping.set()

    async def pairs(self) -> list[Pair]:
        """Every turn that was finished, with scores, in the order in which they were finished.

        Raises:
            RunError: a target is down, or nothing can judge.
        """
        await self._prepare()
        waiting = iter(self._turns)
        async with asyncio.TaskGroup() as workers:
            if self._plan.arrivals:
                workers.create_task(self._arrive(workers))
                waiting = iter(())
            for _ in range(self._plan.concurrency):
                workers.create_task(self._work(waiting))
        if (down := self._down()) is not None:
            raise RunError(down)
        return await self._judged()

    async def _prepare(self) -> None:
        """Warm up; and let the scorers of the first case that has some judge once, to learn before the run
        whether they can."""
        answers = {}
        for client in self._clients:
            for _ in range(self._plan.warm_up):
                answers[client.target.role] = await client.ask(self._plan.cases[0])
        judged = next((case for case in self._plan.cases if case.assertions), None)
        if judged is None:
            return
        answer = answers.get(CANDIDATE)
        if answer is None or answer.error is not None or judged is not self._plan.cases[0]:
            answer = Answer(text="an answer")
        score = await score_case(judged, answer, self._services)
        asked = [reason for reason in score.reasons if "does not answer" in reason or "there is no" in reason]
        if None in score.scores and asked:
            raise RunError(asked[0])

    async def _arrive(self, workers: asyncio.TaskGroup) -> None:
        """Each case at its time."""
        clock = asyncio.get_running_loop().time
        began = clock()
        for turn in sorted(self._turns, key=lambda turn: (turn.repeat, turn.number)):
            due = began + self._plan.arrivals[turn.number]
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._stopping.wait()
                    return
            workers.create_task(self._work(iter((turn,))))

    async def _work(self, waiting: Iterator[Turn]) -> None:
        """Several workers share ``waiting``."""
        for turn in waiting:
            if self._is_stopped:
                return
            self._pairs.append(await self._pair(turn))
            self._progress("asked", len(self._pairs), self.planned)
            if len(self._pairs) == FIRST_FAILURES and self._down() is not None:
                self.stop()

    async def _pair(self, turn: Turn) -> Pair:
        case = self._plan.cases[turn.number]
        order = self._clients if turn.is_candidate_second else self._clients[::-1]
        replies = {}
        for client in order:
            replies[client.target.role] = Reply(await client.ask(case))
        candidate = replies.pop(CANDIDATE)
        return Pair(case, turn, candidate, next(iter(replies.values()), None))

    def _down(self) -> str | None:
        """Which target has failed every request so far, and why."""
        for place, client in enumerate(self._clients):
            answers = [pair.replies[place].answer for pair in self._pairs]
            if answers and all(answer.error is not None for answer in answers):
                target = client.target
                return (
                    f"{target.role} {target.label} at {target.url} failed all of its first {len(answers)} "
                    f"requests: {answers[0].error}"
                )
        return None

    async def _judged(self) -> list[Pair]:
        room = asyncio.Semaphore(JUDGED_AT_ONCE)
        done = 0

        async def judged(pair: Pair) -> Pair:
            nonlocal done
            async with room:
                candidate = await self._scored(pair.case, pair.candidate)
                baseline = pair.baseline and await self._scored(pair.case, pair.baseline)
            done += 1
            self._progress("judged", done, len(self._pairs))
            return replace(pair, candidate=candidate, baseline=baseline)

        return list(await asyncio.gather(*map(judged, self._pairs)))

    async def _scored(self, case: Case, reply: Reply) -> Reply:
        if not case.assertions:
            return reply
        return Reply(reply.answer, await score_case(case, reply.answer, self._services))
