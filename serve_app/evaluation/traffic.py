"""Captured traffic as cases: what was asked and when, what was answered, and how long that took."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from serve_app.errors import SuiteError
from serve_app.evaluation.case import Assertion, Case
from serve_app.evaluation.scorers.registry import make_scorer

SET_BY_TARGET = frozenset({"model", "messages", "prompt", "stream", "stream_options", "n"})
"""Fields of a request that the replay sets itself."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """``arrivals``: seconds after the first request, in order, one for each case. ``former``: what each took
    when it was captured, in seconds, by the case's id. ``left_out``: requests that are no chats, or whose
    answer is not complete. ``captured``: all that was read."""

    cases: tuple[Case, ...]
    arrivals: tuple[float, ...]
    former: Mapping[str, Mapping[str, float]]
    left_out: int = 0
    captured: tuple[Mapping[str, Any], ...] = ()


def traffic_in(lines: Iterable[str], source: str, assertions: tuple[Assertion, ...]) -> Traffic:
    """The requests of a file that `promptly capture export` has written; each answer is what the same request
    is expected to bring again.

    Raises:
        SuiteError: it names file and line.
    """
    _check(assertions)
    captures, left_out, read = [], 0, []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        origin = f"{source}:{number}"
        captured = _capture(line, origin)
        read.append(captured)
        asked, answer = captured["asked"], captured["answer"]
        if not isinstance(asked.get("messages"), list) or not answer.get("complete", True):
            left_out += 1
            continue
        captures.append((float(captured["at"]), origin, captured))
    if not captures:
        raise SuiteError(f"{source}: there is no complete chat to replay")
    captures.sort(key=lambda each: each[0])
    begin = captures[0][0]
    cases, arrivals, former = [], [], {}
    for at, origin, captured in captures:
        case = _case(captured, origin, assertions)
        cases.append(case)
        arrivals.append(at - begin)
        if times := _times(captured):
            former[case.id] = times
    return Traffic(tuple(cases), tuple(arrivals), former, left_out, tuple(read))


def _check(assertions: Iterable[Assertion]) -> None:
    """Raises: SuiteError."""
    for assertion in assertions:
        try:
            make_scorer(assertion)
        except ValueError as error:
            raise SuiteError(f"--assert {assertion.scorer}: {str(error).splitlines()[0]}") from None


def _capture(line: str, origin: str) -> dict[str, Any]:
    """Raises: SuiteError."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise SuiteError(f"{origin}: no JSON: {error}") from None
    for key in ("at", "asked", "answer"):
        if not isinstance(found, dict) or key not in found:
            raise SuiteError(f"{origin}: {key}: missing (write it with: promptly capture export --file)")
    if not isinstance(found["at"], int | float):
        raise SuiteError(f"{origin}: at: expected Unix seconds")
    for key in ("asked", "answer"):
        if not isinstance(found[key], dict):
            raise SuiteError(f"{origin}: {key}: expected an object")
    return found


def _case(captured: Mapping[str, Any], origin: str, assertions: tuple[Assertion, ...]) -> Case:
    """The case of a captured request. If its answer has no text (a tool call), only the times are
    compared."""
    asked, text = captured["asked"], captured["answer"].get("text")
    settings = {name: value for name, value in asked.items() if name not in SET_BY_TARGET}
    return Case(
        id=f"{captured.get('request_id', 'request')}@{captured['at']:.3f}",
        messages=tuple(asked["messages"]),
        expected=text or None,
        assertions=assertions if text else (),
        tags=_tags(captured),
        settings=settings,
        origin=origin,
    )


def _tags(captured: Mapping[str, Any]) -> tuple[str, ...]:
    """The model, and the arm of an experiment: scores are shown for each."""
    named = (captured.get("model"), (captured.get("request") or {}).get("experiment"))
    return tuple(str(name) for name in named if name)


def _times(captured: Mapping[str, Any]) -> dict[str, float]:
    """Not of an answer of the cache: the replay asks the model."""
    known = captured.get("request") or {}
    if known.get("cache") in ("exact", "semantic", "joined"):
        return {}
    found = {"ttft": known.get("ttft_ms"), "e2e": known.get("total_ms")}
    return {
        name: value / 1000 for name, value in found.items() if isinstance(value, int | float) and value > 0
    }
