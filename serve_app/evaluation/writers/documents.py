"""A report as JSON and as JUnit's XML; and the times in the JSON of an earlier one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from serve_app.evaluation.outcome import TIMES
from serve_app.evaluation.report import CaseLine, Report, Row
from serve_app.evaluation.statistics import Interval
from serve_app.evaluation.target import CANDIDATE
from serve_app.evaluation.verdict import Verdict
from serve_app.evaluation.writers import words

SCHEMA_VERSION = 1
"""Raised by a change that a reader of the old form cannot read."""

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class FormerError(ValueError):
    """A file is no earlier report; the message names the key."""


# ---- JSON ------------------------------------------------------------------------------------------------


def as_json(report: Report) -> str:
    document = {
        "schema_version": SCHEMA_VERSION,
        "suite": report.suite,
        "verdict": report.verdict,
        "verdicts": dict(report.verdicts),
        "exit_status": report.status,
        "unusable": report.unusable,
        "notes": list(report.notes),
        "started": report.started,
        "took_s": round(report.took_s, 3),
        "seed": report.seed,
        "turns": report.pairs,
        "planned": report.planned,
        "concurrency": report.concurrency,
        "targets": {
            side.target.role: {
                "model": side.target.model,
                "url": side.target.url,
                "prompt": side.target.prompt,
                "settings": dict(side.target.settings),
                "answers": side.answers,
                "failed": side.failed,
                "first_error": side.first_error,
            }
            for side in report.sides
        },
        "figures": {row.key: _row(row) for row in report.rows},
        "tags": {row.key: _row(row) for row in report.tags},
        "cases": [_case(case) for case in report.cases],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _row(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        "title": row.title,
        "candidate": _interval(row.candidate),
        "baseline": _interval(row.baseline),
        "change": _interval(row.change),
        "change_is": "difference" if row.is_share else "ratio",
    }
    if row.judgement is not None:
        loss = row.judgement.loss
        found |= {
            "verdict": row.judgement.verdict,
            "margin": row.judgement.margin,
            "chance": loss.chance,
            "pairs": loss.count,
            "needed": row.judgement.needed,
        }
    return found


def _interval(interval: Interval | None) -> dict[str, float] | None:
    if interval is None or math.isnan(interval.estimate):
        return None
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def _case(case: CaseLine) -> dict[str, Any]:
    return {
        "id": case.id,
        "tags": list(case.tags),
        "baseline": case.baseline,
        "candidate": case.candidate,
        "failed_by": words.bad_scorers(case.reasons),
        "error": case.error,
        "times_s": case.times,
        **({"answers": case.texts, "reasons": list(case.reasons)} if case.texts else {}),
    }


def former_times(text: str) -> dict[str, dict[str, float]]:
    """The candidate's times by case in an earlier report.

    Raises:
        FormerError: it is none.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise FormerError(f"no JSON: {error}") from None
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise FormerError(f"schema_version: expected {SCHEMA_VERSION}, got {version!r}")
    cases = document.get("cases")
    if not isinstance(cases, list) or not cases:
        raise FormerError("cases: expected a list of cases")
    return {_id(case, number): _case_times(case, number) for number, case in enumerate(cases)}


def _id(case: Any, number: int) -> str:
    if not isinstance(case, dict) or not isinstance(case.get("id"), str):
        raise FormerError(f"cases[{number}].id: expected a text")
    return str(case["id"])


def _case_times(case: Mapping[str, Any], number: int) -> dict[str, float]:
    given = case.get("times_s")
    own = given.get(CANDIDATE) if isinstance(given, dict) else None
    if not isinstance(own, dict):
        raise FormerError(f"cases[{number}].times_s.{CANDIDATE}: expected an object")
    for name, value in own.items():
        if name not in TIMES or isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise FormerError(f"cases[{number}].times_s.{CANDIDATE}.{name}: expected seconds above 0")
    return {name: float(value) for name, value in own.items()}


# ---- JUnit -----------------------------------------------------------------------------------------------


def as_junit(report: Report) -> str:
    """A test case for each verdict, and one for each case. A case fails only where one target is evaluated
    alone: of two, single cases say nothing, the verdict does."""
    tests = [_verdict_test(report, gate, found) for gate, found in report.verdicts.items()]
    if report.unusable is not None:
        tests.append(_test("verdict", "run", "error", report.unusable))
    is_alone = len(report.sides) < 2
    tests += [_case_test(case, fails=is_alone) for case in report.cases]
    counts = {kind: sum(f"<{kind} " in test for test in tests) for kind in ("failure", "error")}
    name = _attribute(report.suite)
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuite name={name} tests="{len(tests)}" failures="{counts["failure"]}" '
            f'errors="{counts["error"]}" time="{report.took_s:.3f}">',
            *tests,
            "</testsuite>",
            "",
        ]
    )


def _verdict_test(report: Report, gate: str, found: Verdict) -> str:
    if found == Verdict.NOT_WORSE:
        return _test("verdict", gate)
    return _test("verdict", gate, "failure", f"{found}: {' '.join(words.sentences(report)[1:])}")


def _case_test(case: CaseLine, *, fails: bool) -> str:
    if case.error is not None:
        return _test("case", case.id, "error" if fails else None, case.error)
    if case.reasons:
        return _test("case", case.id, "failure" if fails else None, words.bad_scorers(case.reasons))
    return _test("case", case.id)


def _test(group: str, name: str, kind: str | None = None, message: str = "") -> str:
    start = f'  <testcase classname="{group}" name={_attribute(name)}'
    if not message:
        return f"{start}/>"
    if kind is None:
        return f"{start}><system-out>{escape(_clean(message))}</system-out></testcase>"
    return f"{start}><{kind} message={_attribute(message)}/></testcase>"


def _attribute(text: str) -> str:
    return quoteattr(_clean(text))


def _clean(text: str) -> str:
    return NOT_XML.sub("�", text)
