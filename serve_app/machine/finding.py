"""What a check of the machine found, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """``WARNING``: a start works, but slowly, untested or not everywhere. ``MISSING``: it fails."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """``found`` says what there is; ``mend`` is the command, or the step, that changes it (empty if all is
    well)."""

    check: str
    verdict: Verdict
    found: str
    mend: str = ""


def ok(check: str, found: str) -> Finding:
    return Finding(check, Verdict.OK, found)


def warning(check: str, found: str, mend: str) -> Finding:
    return Finding(check, Verdict.WARNING, found, mend)


def missing(check: str, found: str, mend: str) -> Finding:
    return Finding(check, Verdict.MISSING, found, mend)
