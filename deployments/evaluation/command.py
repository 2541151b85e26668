"""One evaluation from its checked options to its report."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import aiohttp

from deployments.evaluation.client import TargetClient
from deployments.evaluation.runner import Plan, Progress, Run
from deployments.evaluation.services import HttpServices, Place
from serve_app.evaluation.report import Choices, Report, make_report
from serve_app.evaluation.target import Target

SHOWN_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Asked:
    """``targets``: the candidate, or baseline and candidate."""

    suite: str
    targets: Sequence[Target]
    plan: Plan
    choices: Choices
    judge: Place | None = None
    embedder: Place | None = None
    limit_s: float = 300.0
    keep_texts: bool = False
    notes: Sequence[str] = ()
    """Notes for the report, besides its own."""


def evaluate(asked: Asked, is_quiet: bool = False) -> Report:
    """Run it. The first Ctrl-C ends the run early, the second one this process.

    Raises:
        TargetError: the variable with a key is not set.
        RunError: a target is down, or nothing can judge.
    """
    return asyncio.run(evaluated(asked, silent if is_quiet else Line()))


async def evaluated(asked: Asked, progress: Progress) -> Report:
    """The same as ``evaluate``, in a running loop."""
    started, began = datetime.now(UTC), time.monotonic()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(None)) as http:
        clients = [TargetClient(target, http, asked.limit_s) for target in asked.targets]
        services = HttpServices(http, asked.judge, asked.embedder, asked.limit_s)
        run = Run(asked.plan, clients, services, progress)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            run.stop()
            loop.remove_signal_handler(signal.SIGINT)
            print("\nstopping; Ctrl-C again ends at once", file=sys.stderr, flush=True)

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            pairs = await run.pairs()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
    report = make_report(
        asked.suite,
        asked.targets,
        pairs,
        run.planned,
        asked.choices,
        keep_texts=asked.keep_texts,
        started=started.isoformat(timespec="seconds"),
        took_s=time.monotonic() - began,
        concurrency=asked.plan.concurrency,
    )
    return replace(report, notes=(*report.notes, *asked.notes))


class Line:
    """Progress on standard error, now and then."""

    def __init__(self) -> None:
        self._shown_at = -SHOWN_EVERY_S

    def __call__(self, what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self._shown_at >= SHOWN_EVERY_S or done == of:
            self._shown_at = now
            print(f"  {what} {done:,} of {of:,}", file=sys.stderr, flush=True)


def silent(what: str, done: int, of: int) -> None:
    """No progress."""
