"""What promptfoo's assertions are called here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Options = dict[str, Any]

SIMILAR = 0.75
"""promptfoo's threshold of `similar`."""

KEYS = frozenset({"type", "value", "threshold", "weight", "metric", "provider", "rubricPrompt"})
"""The last three change nothing here: a name for reports, and who judges by which words."""


def assertion(raw: Any) -> Options:
    """
    Raises:
        ValueError: it has no equal here; the message names its type or field.
    """
    kind = raw.get("type") if isinstance(raw, dict) else None
    if not isinstance(kind, str):
        raise ValueError("expected an assertion with `type`")
    unknown = sorted(raw.keys() - KEYS)
    if unknown:
        raise ValueError(f"{unknown[0]}: is not read")
    made = KINDS.get(kind)
    if made is None:
        raise ValueError(f"type {kind!r} is not read; what is: {', '.join(KINDS)}")
    options = made(raw.get("value"), raw)
    if "threshold" in raw and kind != "similar":
        raise ValueError(f"threshold: is not read for {kind!r}")
    return {**options, "weight": _number(raw, "weight", 1.0)} if "weight" in raw else options


def _equals(value: Any, _: Options) -> Options:
    if isinstance(value, dict | list):
        return {"scorer": "json-equal", "value": value}
    return {"scorer": "exact", "value": _given(value)}


def _contains(scorer: str, **more: Any) -> Callable[[Any, Options], Options]:
    def made(value: Any, _: Options) -> Options:
        if isinstance(value, str) and (more.get("any") or more.get("all")):
            value = [part.strip() for part in value.split(",")]
        options = {
            name: option for name, option in more.items() if name == "ignore_case" or scorer == "contains"
        }
        options.pop("all", None)
        return {"scorer": scorer, "value": _given(value), **options}

    return made


def _regex(value: Any, _: Options, *, absent: bool = False) -> Options:
    return {"scorer": "regex", "pattern": str(_given(value)), "absent": absent}


def _starts(value: Any, _: Options, *, absent: bool = False) -> Options:
    return {"scorer": "regex", "pattern": rf"\A{re.escape(str(_given(value)))}", "absent": absent}


def _json(value: Any, _: Options, *, extract: bool) -> Options:
    if value is not None and not isinstance(value, dict):
        raise ValueError("value: expected a JSON schema in the file itself")
    return {"scorer": "json-schema", "schema": True if value is None else value, "extract": extract}


def _similar(value: Any, raw: Options) -> Options:
    return {"scorer": "similar", "value": _given(value), "threshold": _number(raw, "threshold", SIMILAR)}


def _rubric(value: Any, _: Options) -> Options:
    lines = value if isinstance(value, list) else [_given(value)]
    return {"scorer": "judge", "criteria": "\n".join(map(str, lines))}


def _factuality(value: Any, _: Options) -> Options:
    criteria = "The answer agrees with the reference in every fact."
    return {"scorer": "judge", "criteria": criteria, "value": _given(value)}


def _number(raw: Options, name: str, default: float) -> float:
    value = raw.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}: expected a number")
    return float(value)


def _given(value: Any) -> Any:
    if value is None:
        raise ValueError("value: missing")
    return value


KINDS: Mapping[str, Callable[[Any, Options], Options]] = {
    "equals": _equals,
    "contains": _contains("contains"),
    "icontains": _contains("contains", ignore_case=True),
    "contains-all": _contains("contains", all=True),
    "contains-any": _contains("contains", any=True),
    "icontains-all": _contains("contains", ignore_case=True, all=True),
    "icontains-any": _contains("contains", ignore_case=True, any=True),
    "not-contains": _contains("not-contains"),
    "not-icontains": _contains("not-contains", ignore_case=True),
    "not-contains-any": _contains("not-contains", any=True),
    "not-icontains-any": _contains("not-contains", ignore_case=True, any=True),
    "regex": _regex,
    "not-regex": lambda value, raw: _regex(value, raw, absent=True),
    "starts-with": _starts,
    "not-starts-with": lambda value, raw: _starts(value, raw, absent=True),
    "is-json": lambda value, raw: _json(value, raw, extract=False),
    "contains-json": lambda value, raw: _json(value, raw, extract=True),
    "similar": _similar,
    "llm-rubric": _rubric,
    "g-eval": _rubric,
    "model-graded-closedqa": _rubric,
    "factuality": _factuality,
    "model-graded-factuality": _factuality,
}
