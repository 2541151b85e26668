"""What a check is, what it gets and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec
from benchmarks.table import Target

from gpu_check.machine import Machine


class Verdict(StrEnum):
    """``LEFT_OUT``: nothing was found out, and the finding's reason says why."""

    PASS = "pass"
    FAIL = "fail"
    LEFT_OUT = "left out"


class Reading(msgspec.Struct, frozen=True):
    """One measured figure; ``met`` is ``None`` where it is reported only."""

    name: str
    value: float
    unit: str = ""
    target: str = ""
    met: bool | None = None


class Finding(msgspec.Struct, frozen=True):
    """One result of a check. Its files are JSON lines, one finding each."""

    subject: str
    verdict: Verdict
    reason: str = ""
    figures: tuple[Reading, ...] = ()


@dataclass(frozen=True)
class Bench:
    """What a check gets: the model (a folder or a hub id), the machine, and a folder of its own, which is
    removed afterwards."""

    model: str
    machine: Machine
    folder: Path

    @property
    def on_gpu(self) -> bool:
        return self.machine.has_gpu


@dataclass(frozen=True)
class Check:
    """``budget_s``: after so many seconds it is ended, and has failed. ``run`` yields each finding as soon as
    it has it, so that those before an error or an endless wait are kept."""

    name: str
    shows: str
    budget_s: float
    run: Callable[[Bench], Iterator[Finding]]
    needs_gpu: bool = False


def judged(name: str, value: float, unit: str, target: Target) -> Reading:
    return Reading(name, value, unit, str(target), target.met_by(value))


def finding(subject: str, *figures: Reading, reason: str = "", passed: bool = True) -> Finding:
    """It passes if ``passed`` and every figure with a target meets it."""
    missed = [f"{each.name} is not {each.target}" for each in figures if each.met is False]
    verdict = Verdict.PASS if passed and not missed else Verdict.FAIL
    return Finding(subject, verdict, "; ".join(filter(None, [reason, *missed])), figures)


def failed(subject: str, reason: str) -> Finding:
    return Finding(subject, Verdict.FAIL, reason)


def left_out(subject: str, reason: str) -> Finding:
    return Finding(subject, Verdict.LEFT_OUT, reason)
