"""The phases of an engine's start, from time stamps that its processes noted. All are seconds of the wall
clock, which the processes of one node share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MarkKind = Literal["core", "load", "loaded", "compile_began", "compile_ended", "compile", "graphs", "init"]


@dataclass(frozen=True, slots=True)
class Mark:
    """An event noted by an engine's process ``at`` a time; ``seconds`` is the duration that it reported.

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
    """Seconds of each phase, in order; together they are ``engine - process``.

    ``process`` is when the replica's process began, ``constructor`` when it had installed and imported what
    it needs, ``engine`` when the engine's front end was ready. Between the last two: ``processes``
    (configuration, the engine's own processes), ``load`` (the weights), ``compile``, ``graphs``, ``kv_cache``
    (profiling and allocation), ``server``. Without the marks to tell these apart, they are one phase,
    ``engine``.
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
    """Where workers log elsewhere, the core's begin stands for it."""
    began = [mark.at for mark in marks if mark.kind == "load"]
    began += [mark.at - mark.seconds for mark in marks if mark.kind == "loaded"]
    began = began or [mark.at for mark in marks if mark.kind == "core"]
    return min(began, default=None)


def _compile_s(marks: Sequence[Mark]) -> float:
    """Processes compile side by side: the slowest counts."""
    began = {mark.process: mark.at for mark in marks if mark.kind == "compile_began"}
    pairs = [
        mark.at - began[mark.process]
        for mark in marks
        if mark.kind == "compile_ended" and mark.process in began
    ]
    return max(_longest_s(marks, "compile"), max(pairs, default=0.0))


def _longest_s(marks: Sequence[Mark], kind: MarkKind) -> float:
    """The sum of each process, of the process where it is largest."""
    sums: dict[int, float] = {}
    for mark in marks:
        if mark.kind == kind:
            sums[mark.process] = sums.get(mark.process, 0.0) + mark.seconds
    return max(sums.values(), default=0.0)
