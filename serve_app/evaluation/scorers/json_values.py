"""`json-schema` and `json-equal`: answers that are JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from pydantic import Field
from referencing.exceptions import Unresolvable

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.document import strict_json
from serve_app.evaluation.scorers.base import Score, ScoreError, Services
from serve_app.evaluation.scorers.options import OptionScorer, shown, verdict
from serve_app.evaluation.scorers.patterns import is_found
from serve_app.openai.depth import is_deeper

MOST_CHARS = 1 << 20
"""A longer answer is no JSON that a case can want, and would keep the validator busy for seconds."""

MOST_DEPTH = 64
"""Validators recurse: deeper answers would end as errors of Python, not as answers that fail."""

FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)```", re.DOTALL)


class _Json(OptionScorer):
    extract: bool = False
    """Also JSON within a Markdown fence, or the first object or array within other text."""

    def parsed(self, answer: Answer) -> Any:
        """
        Raises:
            ValueError: the answer is no JSON.
        """
        if len(answer.text) > MOST_CHARS:
            raise ValueError(f"the answer has {len(answer.text)} characters, more than {MOST_CHARS}")
        try:
            value = extracted(answer.text) if self.extract else strict_json(answer.text)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if is_deeper([value], MOST_DEPTH):
            raise ValueError(f"nested deeper than {MOST_DEPTH} levels")
        return value


def extracted(text: str) -> Any:
    """The JSON of a text: all of it, else the first fence, else the first object or array that can be read.

    Raises:
        ValueError: there is none.
        RecursionError: it is nested too deeply.
    """
    fence = FENCE.search(text)
    for each in (text, fence[1]) if fence else (text,):
        try:
            return strict_json(each)
        except ValueError:
            continue
    start = min((place for place in (text.find("{"), text.find("[")) if place >= 0), default=-1)
    if start < 0:
        raise ValueError("there is no object or array")
    _, length = json.JSONDecoder().raw_decode(text[start:])
    return strict_json(text[start : start + length])


class JsonSchema(_Json):
    """The answer is JSON that ``schema`` (Draft 2020-12) allows. References lead to places in the schema
    only."""

    compares: ClassVar[bool] = False

    rules: dict[str, Any] | bool = Field(alias="schema")

    def check(self, *, has_expected: bool) -> None:
        if self.value is not None:
            raise ValueError("`value`: expected `schema` in its place")
        try:
            Draft202012Validator.check_schema(self.rules)
        except SchemaError as error:
            raise ValueError(f"`schema` is no JSON schema: {shown(error.message)}") from None
        except RecursionError:
            raise ValueError("`schema` is nested too deeply") from None

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        try:
            value = self.parsed(answer)
        except ValueError as error:
            return verdict(False, f"not JSON: {error}: {shown(answer.text)}")
        try:
            wrong = next(BoundedValidator(self.rules).iter_errors(value), None)
        except Unresolvable as error:
            raise ScoreError(f"the schema refers to what is not in it: {error}") from None
        except RecursionError:
            raise ScoreError("the schema or the answer is nested too deeply") from None
        if wrong is None:
            return verdict(True, "allowed by the schema")
        return verdict(False, f"{shown(wrong.json_path)}: {shown(wrong.message)}")


class JsonEqual(_Json):
    """The answer is JSON equal to ``value``; with ``subset``, objects may have more keys than ``value``
    names. The order of keys does not count, and 1 equals 1.0."""

    subset: bool = False

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        try:
            value = self.parsed(answer)
        except ValueError as error:
            return verdict(False, f"not JSON: {error}: {shown(answer.text)}")
        wanted = self.wanted(case)
        try:
            same = is_same(wanted, value, subset=self.subset)
        except RecursionError:
            raise ScoreError("nested too deeply to compare") from None
        return verdict(same, "equal" if same else f"expected {shown(wanted)}, got {shown(value)}")


def is_same(wanted: Any, value: Any, *, subset: bool = False) -> bool:
    """Equality of JSON: ``true`` is not 1."""
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        keys_fit = wanted.keys() <= value.keys() if subset else wanted.keys() == value.keys()
        return keys_fit and all(is_same(each, value[name], subset=subset) for name, each in wanted.items())
    if isinstance(wanted, list | tuple) and isinstance(value, list | tuple):
        pairs = zip(wanted, value, strict=False)
        return len(wanted) == len(value) and all(is_same(*pair, subset=subset) for pair in pairs)
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    return bool(wanted == value)


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not is_found(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _: Any
) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, schema in patterns.items():
            for name, value in instance.items():
                if is_found(pattern, name):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _unique_items(_: Any, wanted: bool, instance: Any, __: Any) -> Iterator[ValidationError]:
    """In linear time, where jsonschema's own takes the square for values that have no order."""
    if wanted and isinstance(instance, list) and len({_key(each) for each in instance}) < len(instance):
        yield ValidationError("an item stands twice")


def _key(value: Any) -> str:
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    """The value with 1.0 as 1: JSON knows one kind of number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return {key: _whole(each) for key, each in value.items()} if isinstance(value, dict) else value


BoundedValidator = extend(
    Draft202012Validator,
    {"pattern": _pattern, "patternProperties": _pattern_properties, "uniqueItems": _unique_items},
)
"""Time does not grow by more than an answer's length: patterns are bounded, and so is looking for twins."""
