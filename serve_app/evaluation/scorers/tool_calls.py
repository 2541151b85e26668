"""`tool-calls`: which tools were called, with which arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.document import strict_json
from serve_app.evaluation.scorers.base import Score, ScoreError, Services
from serve_app.evaluation.scorers.json_values import is_same
from serve_app.evaluation.scorers.options import OptionScorer, shown, verdict

MOST_CALLS = 256
"""Further calls of an answer count as not wanted."""

Call = Mapping[str, Any]


class ToolCalls(OptionScorer):
    """The answer calls ``value``: a list of ``{name, arguments}``, where a call without ``arguments`` may
    have any.

    ``arguments``: ``equal``, or ``subset`` where a call may have more than is named. ``ordered``: in this
    order. ``extra``: other calls are allowed. An empty list wants no call. The score is the share of wanted
    calls, or of calls, if there are more.
    """

    arguments: Literal["equal", "subset"] = "equal"
    ordered: bool = False
    extra: bool = False

    def check(self, *, has_expected: bool) -> None:
        super().check(has_expected=has_expected)
        if self.value is not None:
            wanted_calls(self.value)

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        try:
            wanted = wanted_calls(self.wanted(case))
        except ValueError as error:
            raise ScoreError(str(error)) from None
        try:
            said = [_said(call) for call in answer.tool_calls[:MOST_CALLS]]
            fits = [[self._fits(want, call) for call in said] for want in wanted]
        except RecursionError:
            return verdict(False, "arguments are nested too deeply")
        found = _in_order(fits) if self.ordered else _matching(fits)
        most = len(wanted) if self.extra else max(len(wanted), len(answer.tool_calls))
        if found == most:
            return verdict(True, "called as expected")
        names = ", ".join(shown(name) for name, _ in said[:5]) or "nothing"
        want = ", ".join(shown(call["name"]) for call in wanted[:5]) or "no call"
        fit = f"{found} of {len(wanted)} fit" if wanted else "none is wanted"
        return verdict(False, f"expected {want}, got {names} ({fit})", found / most)

    def _fits(self, want: Call, said: tuple[Any, Any]) -> bool:
        name, arguments = said
        if want["name"] != name:
            return False
        if "arguments" not in want:
            return True
        return is_same(want["arguments"], arguments, subset=self.arguments == "subset")


def wanted_calls(value: Any) -> list[Call]:
    """
    Raises:
        ValueError: it is no list of calls.
    """
    calls = value if isinstance(value, list | tuple) else [value]
    for number, call in enumerate(calls):
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            raise ValueError(f"call {number}: expected a mapping with `name`, got {shown(call)}")
        if call.keys() - {"name", "arguments"}:
            raise ValueError(f"call {number}: expected only `name` and `arguments`")
        if not isinstance(call.get("arguments", {}), Mapping):
            raise ValueError(f"call {number}: `arguments`: expected a mapping")
    return list(calls)


def _said(call: Mapping[str, Any]) -> tuple[Any, Any]:
    """Name and arguments; arguments that are no JSON object are equal to nothing."""
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = strict_json(arguments or "{}")
        except ValueError:
            arguments = None
    return function.get("name"), arguments


def _in_order(fits: Sequence[Sequence[bool]]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(fits[0]) + 1 if fits else 1)
    for line in fits:
        last = row
        row = [0]
        for number, fit in enumerate(line):
            row.append(last[number] + 1 if fit else max(row[number], last[number + 1]))
    return row[-1]


def _matching(fits: Sequence[Sequence[bool]]) -> int:
    """How many wanted calls can have a call of their own, whichever way they are given out."""
    owner: dict[int, int] = {}

    def placed(want: int, tried: set[int]) -> bool:
        for call, fit in enumerate(fits[want]):
            if fit and call not in tried:
                tried.add(call)
                if call not in owner or placed(owner[call], tried):
                    owner[call] = want
                    return True
        return False

    return sum(placed(want, set()) for want in range(len(fits)))
