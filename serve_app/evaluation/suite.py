"""Suites of cases: what a file may say, and what its cases become.

Every format (``formats/``) is turned into the shape that is read here::

    name: greetings
    defaults:
      system: You answer in one word.
      settings: {max_tokens: 8, temperature: 0}
    cases:
      - id: hello-de
        prompt: "Say hello in {{language}}."
        variables: {language: German}
        expected: Hallo
        assertions: [{scorer: contains, ignore_case: true}]
        tags: [language]
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serve_app.errors import SuiteError
from serve_app.evaluation.case import Assertion, Case
from serve_app.evaluation.document import Document, Keys
from serve_app.evaluation.formats.registry import read_document
from serve_app.evaluation.scorers.registry import SCORERS, make_scorer
from serve_app.evaluation.variables import as_text, filled, missing

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
TARGETS = frozenset({"model", "messages", "prompt", "input", "stream", "stream_options", "n"})
"""Fields of a request that the target or the runner sets."""

MOST_PROBLEMS = 20
"""Shown of one file."""


Shape = TypeVar("Shape", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Suite:
    """``source``: the file that it was read from."""

    name: str
    cases: tuple[Case, ...]
    description: str = ""
    source: str = ""


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _AssertionShape(BaseModel):
    """Everything but these two is an option of the scorer, which checks it."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    scorer: str
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)


class _Defaults(_Shape):
    """What holds for each case that does not say otherwise. Settings are merged, tags are added."""

    system: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    variables: dict[str, Any] = {}
    assertions: list[Any] | None = None
    tags: list[str] = []
    settings: dict[str, Any] = {}


class _CaseShape(_Defaults):
    id: str = Field(min_length=1, max_length=200)
    expected: Any = None
    template: bool = True


class _Head(_Shape):
    name: str | None = None
    description: str = ""
    defaults: _Defaults = _Defaults()
    cases: list[Any]


def load_suite(
    path: Path | str, format_name: str | None = None, *, assertions: Sequence[Any] | None = None
) -> Suite:
    """Read a suite. ``format_name``: one of ``formats.registry.FORMATS``; ``None``: by what the file holds.
    ``assertions``: as a suite writes them, for cases that have none of their own; they replace those of the
    file's `defaults`.

    Raises:
        SuiteError: each line of the message is one problem: file, line, key, expectation.
    """
    path = Path(path)
    document = read_document(path, format_name)
    if assertions is not None and isinstance(document.value, dict):
        defaults = document.value.get("defaults")
        defaults = {**(defaults if isinstance(defaults, dict) else {}), "assertions": list(assertions)}
        document = replace(document, value={**document.value, "defaults": defaults})
    return _Building(document, path).suite()


class _Problems:
    """Collects what is wrong with a document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._told: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._told)

    def checked(self, shape: type[Shape], value: Any, keys: Keys) -> Shape | None:
        if not isinstance(value, dict):
            self.wrong(keys, f"expected a mapping, got {_kind(value)}")
            return None
        try:
            return shape.model_validate(value)
        except ValidationError as error:
            self.describe(error, shape, keys)
            return None

    def describe(self, error: ValidationError, shape: type[BaseModel], keys: Keys) -> None:
        for item in error.errors(include_url=False):
            inner: Keys = item["loc"]
            if item["type"] == "extra_forbidden":
                known = _Defaults if inner[:1] == ("defaults",) else shape
                what = _unknown(
                    str(inner[-1]), [each.alias or name for name, each in known.model_fields.items()]
                )
            elif item["type"] == "missing":
                what = "missing"
            elif item["type"] == "value_error":
                what = str(item["ctx"]["error"])
            else:
                expectation = item["msg"].removeprefix("Input should be ").removeprefix("Value should have ")
                what = f"expected {expectation}, got {_kind(item['input'])}"
            self.wrong((*keys, *inner), what)

    def wrong(self, keys: Keys, what: str) -> None:
        self._told.append(self._document.problem(keys, what))

    def error(self) -> SuiteError:
        lines = list(dict.fromkeys(self._told))
        left = len(lines) - MOST_PROBLEMS
        return SuiteError("\n".join([*lines[:MOST_PROBLEMS], *([f"… and {left} more"] if left > 0 else [])]))


class _Assertions:
    """The assertions of cases."""

    def __init__(self, folder: Path, problems: _Problems) -> None:
        self._folder = folder
        self._problems = problems

    def read(self, defaults: _Defaults, shape: _CaseShape, keys: Keys) -> tuple[Assertion, ...]:
        """Those of the case, else those of all cases, else ``exact`` where something is expected."""
        given = shape.assertions if shape.assertions is not None else defaults.assertions
        if given is None:
            if shape.expected is None:
                self._problems.wrong(
                    keys, "nothing decides: expected `expected` or `assertions` (`assertions: []` for timing)"
                )
                return ()
            given = ["exact"]
        if shape.assertions is not None:
            keys = (*keys, "assertions")
        elif defaults.assertions is not None:
            keys = ("defaults", "assertions")
        found = (self._one(raw, (*keys, number), shape) for number, raw in enumerate(given))
        return tuple(assertion for assertion in found if assertion is not None)

    def _one(self, raw: Any, keys: Keys, case: _CaseShape) -> Assertion | None:
        raw = {"scorer": raw} if isinstance(raw, str) else raw
        shape = self._problems.checked(_AssertionShape, raw, keys)
        if shape is None:
            return None
        options = dict(shape.model_extra or {})
        function = options.get("function")
        if shape.scorer == "python" and isinstance(function, str):
            options["function"] = self._beside(function)
        assertion = Assertion(shape.scorer, options, shape.weight)
        try:
            make_scorer(assertion, has_expected=case.expected is not None)
        except ValidationError as error:
            self._problems.describe(error, SCORERS[shape.scorer], keys)
        except ValueError as error:
            self._problems.wrong(keys, str(error))
        return assertion

    def _beside(self, function: str) -> str:
        """``checks.py:is_polite`` with the path from the suite's folder."""
        name, colon, attribute = function.rpartition(":")
        return f"{(self._folder / name).resolve()}{colon}{attribute}" if name.endswith(".py") else function


class _Building:
    """Makes a suite of a document."""

    def __init__(self, document: Document, path: Path) -> None:
        self._document = document
        self._path = path
        self._problems = _Problems(document)
        self._assertions = _Assertions(path.parent, self._problems)

    def suite(self) -> Suite:
        value = self._document.value
        head = self._problems.checked(_Head, value, ())
        if head is None:
            raise self._problems.error()
        if not head.cases:
            self._problems.wrong(("cases",), "there is no case")
        found = [self._case(head.defaults, raw, ("cases", number)) for number, raw in enumerate(head.cases)]
        cases = tuple(case for case in found if case is not None)
        _refuse_same_ids(found, self._problems)
        if self._problems:
            raise self._problems.error()
        return Suite(head.name or self._path.stem, cases, head.description, str(self._path))

    def _case(self, defaults: _Defaults, raw: Any, keys: Keys) -> Case | None:
        shape = self._problems.checked(_CaseShape, raw, keys)
        if shape is None:
            return None
        variables = self._variables(defaults, shape, keys)
        expected = self._filled(shape.expected, variables, (*keys, "expected"), shape)
        settings = {**defaults.settings, **shape.settings}
        for name in sorted(settings.keys() & TARGETS):
            self._problems.wrong((*keys, "settings", name), "the target sets this field; leave it out")
        return Case(
            id=shape.id,
            messages=self._messages(defaults, shape, variables, keys),
            expected=expected,
            assertions=self._assertions.read(defaults, shape, keys),
            variables=variables,
            tags=tuple(dict.fromkeys([*defaults.tags, *shape.tags])),
            settings=settings,
            origin=self._document.where(keys),
        )

    def _variables(self, defaults: _Defaults, shape: _CaseShape, keys: Keys) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in {**defaults.variables, **shape.variables}.items():
            text = as_text(value)
            if text is None:
                self._problems.wrong((*keys, "variables", name), "expected text or a number")
            else:
                found[name] = text
        return found

    def _messages(
        self, defaults: _Defaults, shape: _CaseShape, variables: Mapping[str, str], keys: Keys
    ) -> tuple[Mapping[str, Any], ...]:
        own = shape.prompt is not None or shape.messages is not None
        source: _Defaults = shape if own else defaults
        if source.prompt is not None and source.messages is not None:
            self._problems.wrong((*keys, "messages"), "expected `prompt` or `messages`, not both")
            return ()
        if source.messages is not None:
            if shape.system is not None:
                self._problems.wrong(
                    (*keys, "system"), "`system` goes with `prompt`; here it is one of `messages`"
                )
            messages = source.messages
            for number, message in enumerate(messages):
                _check_message(message, (*keys, "messages", number), self._problems)
            if not messages:
                self._problems.wrong((*keys, "messages"), "there is no message")
        elif source.prompt is not None:
            system = shape.system if shape.system is not None else defaults.system
            messages = [{"role": "system", "content": system}] if system else []
            messages = [*messages, {"role": "user", "content": source.prompt}]
        elif variables:
            return ()
        else:
            self._problems.wrong(
                keys, "expected `prompt`, `messages`, or `variables` for a target with a prompt"
            )
            return ()
        filled: list[Mapping[str, Any]] = self._filled(messages, variables, (*keys, "messages"), shape)
        return tuple(filled)

    def _filled(self, value: Any, variables: Mapping[str, str], keys: Keys, shape: _CaseShape) -> Any:
        """The value with variables in the place of ``{{name}}``."""
        if not shape.template:
            return value
        if isinstance(value, str):
            for name in missing(value, variables):
                self._problems.wrong(
                    keys, f"the variable {name!r} is not given (`template: false` keeps braces)"
                )
            return filled(value, variables)
        if isinstance(value, list):
            return [
                self._filled(inner, variables, (*keys, number), shape) for number, inner in enumerate(value)
            ]
        if isinstance(value, dict):
            return {key: self._filled(inner, variables, (*keys, key), shape) for key, inner in value.items()}
        return value


def _check_message(message: Mapping[str, Any], keys: Keys, problems: _Problems) -> None:
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        problems.wrong((*keys, "role"), f"expected one of: {', '.join(sorted(ROLES))}")
    content = message.get("content")
    is_call = content is None and role == "assistant" and message.get("tool_calls")
    if not is_call and not isinstance(content, str | list):
        problems.wrong((*keys, "content"), "expected text or a list of parts")


def _refuse_same_ids(cases: Sequence[Case | None], problems: _Problems) -> None:
    seen: dict[str, Case] = {}
    for number, case in enumerate(cases):
        if case is None:
            continue
        if case.id in seen:
            first = seen[case.id].origin
            problems.wrong(("cases", number, "id"), f"{case.id!r} is already the id of the case at {first}")
        seen.setdefault(case.id, case)


def _kind(value: Any) -> str:
    """What a value is, in the words of YAML; short texts and numbers as they are."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _unknown(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown field; {hint}expected one of: {', '.join(sorted(known))}"
