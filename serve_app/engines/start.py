"""The phases of an engine's start, from time stamps of its processes. All are seconds of the wall clock,
which the processes of one node share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MarkKind = Literal["core", "load", "loaded", "compile_began", "compile_ended", "compile", "graphs", "init"]


@dataclass(frozen=True, slots=True)
class Mark:
    """An event that an engine's process logged ``at`` a time; ``seconds`` is the duration that it reported.

    ``core``: the engine core has begun. ``load``: loading of the weights begins. ``loaded``: it ended, with
    its duration. ``compile_began`` and ``compile_ended``: compilation; ``compile``: its duration. ``graphs``:
    CUDA graphs were captured, with the duration. ``init``: the total duration of profiling, KV cache,
    compilation and graphs.
    """

    kind: MarkKind
    at: float
    seconds: float = 0.0
    process: int = 0


def start_phases(
    *, process: float, constructor: float, engine: float, marks: Sequence[Mark]
) -> dict[str, float]:
    """Seconds of each phase, in order; their sum is ``engine - process``.

    ``process`` is when the replica's process began, ``constructor`` when it had installed and imported what
    it needs, ``engine`` when the engine's front end was ready. Between the last two: ``processes``
    (configuration, the engine's own processes), ``load`` (the weights), ``compile``, ``graphs``, ``kv_cache``
    (profiling and allocation), ``server``. If the marks are missing, these are one phase, ``engine``.
    """
    phases = {"install": max(constructor - process, 0.0)}
    load_at = _load_began(marks)
    init = next((mark for mark in reversed(marks) if mark.kind == "init"), None)
    if load_at is None or init is None:
        return phases | {"engine": engine - constructor}
    compiled = min(_compile_s(marks), init.seconds)
    graphs = min(_longest_s(marks, "graphs"), init.seconds - compiled)
    return phases | {
        "processes": load_at - constructor,
        "load": max(init.at - init.seconds - load_at, 0.0),
        "compile": compiled,
        "graphs": graphs,
        "kv_cache": init.seconds - compiled - graphs,
        "server": max(engine - init.at, 0.0),
    }


def _load_began(marks: Sequence[Mark]) -> float | None:
    """The beginning of loading. If the workers log elsewhere, the engine core's start is used instead."""
    began = [mark.at for mark in marks if mark.kind == "load"]
    began += [mark.at - mark.seconds for mark in marks if mark.kind == "loaded"]
    began = began or [mark.at for mark in marks if mark.kind == "core"]
    return min(began, default=None)


def _compile_s(marks: Sequence[Mark]) -> float:
    """Processes compile in parallel, so the slowest one counts."""
    began = {mark.process: mark.at for mark in marks if mark.kind == "compile_began"}
    pairs = [
        mark.at - began[mark.process]
        for mark in marks
        if mark.kind == "compile_ended" and mark.process in began
    ]
    return max(_longest_s(marks, "compile"), max(pairs, default=0.0))


def _longest_s(marks: Sequence[Mark], kind: MarkKind) -> float:
    """The largest sum of one process's marks of this kind."""
    sums: dict[int, float] = {}
    for mark in marks:
        if mark.kind == kind:
            sums[mark.process] = sums.get(mark.process, 0.0) + mark.seconds
    return max(sums.values(), default=0.0)
