"""Runs checks one after the other, each in a process of its own with a budget of seconds.

A check that fails, hangs or dies loses nothing of the others: what it found until then is kept, it is ended,
and the next one begins. All that it started is below this process, because this process is a child
subreaper (:func:`deployments.launcher.processes.become_subreaper`), and is ended with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from benchmarks.peers.endpoint import environment
from benchmarks.peers.processes import scratch_folder, spawn

from deployments.launcher import processes
from gpu_check.contract import Check, Finding, Verdict, failed, left_out

NO_GPU = "this machine has no NVIDIA GPU (nvidia-smi finds none)"
NO_TIME = "the time of the whole run was over"
INTERRUPTED = "interrupted"
LEAST_S = 5.0
"""A check with less time than that is not begun."""

STOP_S = 30.0
"""Time for a check to stop its engines and Ray; then they are killed."""

KILL_S = 10.0
TAIL_LINES = 12

Command = Callable[[Check, Path], Sequence[str]]
"""The command that runs a check and writes its findings into the folder's :data:`FINDINGS`."""

FINDINGS = "findings.jsonl"


@dataclass(frozen=True)
class Result:
    """What a check found, and how long it took."""

    check: Check
    findings: tuple[Finding, ...]
    seconds: float = 0.0

    def count(self, verdict: Verdict) -> int:
        return sum(each.verdict is verdict for each in self.findings)


@dataclass(frozen=True)
class Limits:
    """``patience`` multiplies every budget: engines on a CPU start more slowly."""

    total_s: float
    patience: float = 1.0
    stop_s: float = STOP_S


class Interrupted(Exception):
    """Ctrl-C or SIGTERM; ``results`` are those so far, with a reason for every check that was not done."""

    def __init__(self, results: Sequence[Result]) -> None:
        super().__init__(INTERRUPTED)
        self.results = tuple(results)


def run_checks(
    checks: Sequence[Check],
    command: Command,
    limits: Limits,
    *,
    has_gpu: bool,
    record: Callable[[Sequence[Result]], None] = lambda results: None,
) -> list[Result]:
    """The results of all checks, in order; ``record`` gets those so far after each.

    Raises:
        Interrupted: by Ctrl-C. The check that ran has been ended.
    """
    results: list[Result] = []
    deadline = time.monotonic() + limits.total_s
    for check in checks:
        left_s = deadline - time.monotonic()
        if check.needs_gpu and not has_gpu:
            results.append(Result(check, (left_out(check.name, NO_GPU),)))
        elif left_s < min(LEAST_S, check.budget_s):
            results.append(Result(check, (left_out(check.name, NO_TIME),)))
        else:
            running = _Run(check, check.budget_s * limits.patience, left_s, limits.stop_s)
            try:
                results.append(running.done(command))
            except KeyboardInterrupt:
                rest = [Result(each, (left_out(each.name, INTERRUPTED),)) for each in checks]
                raise Interrupted([*results, running.interrupted(), *rest[len(results) + 1 :]]) from None
        record(results)
    return results


class _Run:
    """One check: its process, from start to end."""

    def __init__(self, check: Check, budget_s: float, left_s: float, stop_s: float) -> None:
        """``left_s``: of the whole run. A check that is ended with the run has not failed."""
        self._check = check
        self._budget_s = min(budget_s, left_s)
        self._ends_with_the_run = left_s < budget_s
        self._stop_s = stop_s
        self._began = time.monotonic()
        self._found: tuple[Finding, ...] = ()

    def done(self, command: Command) -> Result:
        with scratch_folder() as folder:
            before = set(processes.descendants(os.getpid()))
            log = folder / "log"
            process = spawn(command(self._check, folder), environment(), log)
            try:
                ending = self._ending(process)
            finally:
                _end(process, self._stop_s)
                _sweep(before)
                self._found = read_findings(folder / FINDINGS)
            if ending == NO_TIME:
                self._found += (left_out(self._check.name, NO_TIME),)
            elif ending or not self._found:
                reason = ending or "it found nothing"
                self._found += (failed(self._check.name, f"{reason}{_tail(log)}"),)
            return self._result()

    def interrupted(self) -> Result:
        self._found += (left_out(self._check.name, INTERRUPTED),)
        return self._result()

    def _ending(self, process: subprocess.Popen[bytes]) -> str:
        """Why it ended other than it should; empty if it did not."""
        try:
            code = process.wait(self._budget_s)
        except subprocess.TimeoutExpired:
            return NO_TIME if self._ends_with_the_run else f"not done within {self._budget_s:.0f} s"
        return "" if code == 0 else f"it ended by itself ({_exit(code)})"

    def _result(self) -> Result:
        return Result(self._check, self._found, time.monotonic() - self._began)


def read_findings(path: Path) -> tuple[Finding, ...]:
    """Whole lines only: a killed check may have left half a line."""
    if not path.exists():
        return ()
    lines = path.read_bytes().split(b"\n")[:-1]
    return tuple(msgspec.json.decode(line, type=Finding) for line in lines)


def _exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _end(process: subprocess.Popen[bytes], stop_s: float) -> None:
    process.terminate()
    try:
        process.wait(stop_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(KILL_S)


def _sweep(before: set[int]) -> None:
    """Kill what a check left, also what its processes orphaned, and nothing that was there ``before``."""

    def gone() -> bool:
        processes.reap_orphans([])
        left = [pid for pid in processes.descendants(os.getpid()) if pid not in before]
        for pid in left:
            processes.send_signal(pid, signal.SIGKILL)
        return not left

    processes.wait_until(gone, KILL_S)


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    return "\n" + "\n".join(lines) if lines else ""
