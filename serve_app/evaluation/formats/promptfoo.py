"""Configurations of promptfoo: `prompts`, `tests` with `vars` and `assert`, `defaultTest`,
`assertionTemplates`.

Each test is asked with each prompt, and once for each value of a variable that is a list. Providers are not
read: the targets of `promptly eval` stand in their place. What has no meaning here is an error that names it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from serve_app.errors import SuiteError
from serve_app.evaluation.document import Document, Keys, parse_csv, parse_yaml, read_text, strict_json
from serve_app.evaluation.formats.contract import Converting, Format
from serve_app.evaluation.formats.promptfoo_asserts import assertion
from serve_app.evaluation.variables import as_text, each_text, filled, missing

MOST_CASES = 100_000
FILE = "file://"
LOGIC = re.compile(r"\{%|\{\{[^}]*[|(\[][^}]*\}\}")
"""Nunjucks beyond plain variables."""

TEST_KEYS = frozenset({"description", "vars", "assert", "metadata", "provider", "providers", "options"})
NOT_READ = ("scenarios", "redteam", "nunjucksFilters", "extensions")


def matches(document: Document) -> bool:
    value = document.value
    return isinstance(value, dict) and "cases" not in value and "prompts" in value and "tests" in value


def convert(document: Document, path: Path) -> Document:
    config = document.value if isinstance(document.value, dict) else {}
    found = Converting(document)
    for name in NOT_READ:
        if config.get(name):
            found.wrong((name,), "is not read")
    prompts = list(_prompts(config.get("prompts"), path, found))
    default = config.get("defaultTest") or {}
    if not isinstance(default, dict):
        found.wrong(("defaultTest",), "expected a mapping")
        default = {}
    templates = config.get("assertionTemplates") or {}
    reader = _Tests(found, prompts, default, templates if isinstance(templates, dict) else {})
    for number, (test, keys) in enumerate(_tests(config.get("tests"), path, found), start=1):
        reader.read(test, number, keys)
    return found.result(str(config.get("description") or path.stem))


def _prompts(given: Any, path: Path, found: Converting) -> Iterator[Any]:
    """Each as text, or as the messages of a chat."""
    for number, prompt in enumerate(given if isinstance(given, list) else [given]):
        keys: Keys = ("prompts", number) if isinstance(given, list) else ("prompts",)
        text = prompt.get("raw", prompt.get("id")) if isinstance(prompt, dict) else prompt
        if not isinstance(text, str):
            found.wrong(keys, "expected text or a file")
        elif text.startswith(FILE) or text.endswith((".txt", ".json")):
            yield from _prompt_file(path.parent / text.removeprefix(FILE), keys, found)
        else:
            yield _chat(text)


def _prompt_file(path: Path, keys: Keys, found: Converting) -> Iterator[Any]:
    if path.suffix not in (".txt", ".json", ".md"):
        found.wrong(keys, f"prompts in {path.suffix or path.name} files are not read")
        return
    try:
        text = read_text(path)
    except SuiteError as error:
        found.wrong(keys, str(error))
        return
    parts = re.split(r"^---[ \t]*$", text, flags=re.MULTILINE) if path.suffix == ".txt" else [text]
    yield from (_chat(part.strip()) for part in parts if part.strip())


def _chat(text: str) -> Any:
    if text.lstrip().startswith("["):
        try:
            messages = strict_json(text)
        except (ValueError, RecursionError):
            return text
        if isinstance(messages, list) and all(isinstance(each, dict) for each in messages):
            return messages
    return text


def _tests(given: Any, path: Path, found: Converting) -> Iterator[tuple[dict[str, Any], Keys]]:
    if isinstance(given, str):
        yield from _test_file(path.parent / given.removeprefix(FILE), ("tests",), found)
        return
    if not isinstance(given, list):
        found.wrong(("tests",), "expected a list of tests, or a file")
        return
    for number, test in enumerate(given):
        if isinstance(test, str):
            yield from _test_file(path.parent / test.removeprefix(FILE), ("tests", number), found)
        elif isinstance(test, dict):
            yield test, ("tests", number)
        else:
            found.wrong(("tests", number), "expected a test")


def _test_file(path: Path, keys: Keys, found: Converting) -> Iterator[tuple[dict[str, Any], Keys]]:
    """A table has one variable in each column; `__expected` is an assertion, which is not read."""
    try:
        if path.suffix == ".csv":
            rows = parse_csv(read_text(path), str(path)).value
            yield from ((_of_row(row, keys, found), keys) for row in rows)
        elif path.suffix in (".yaml", ".yml", ".json"):
            tests = parse_yaml(read_text(path), str(path)).value
            yield from ((test, keys) for test in tests if isinstance(test, dict))
        else:
            found.wrong(keys, f"tests in {path.suffix or path.name} files are not read")
    except SuiteError as error:
        found.wrong(keys, str(error))
    except TypeError:
        found.wrong(keys, f"{path}: expected a list of tests")


def _of_row(row: Mapping[str, str], keys: Keys, found: Converting) -> dict[str, Any]:
    expected = row.get("__expected", "")
    kind, colon, value = expected.partition(":")
    test: dict[str, Any] = {"vars": {name: cell for name, cell in row.items() if not name.startswith("__")}}
    if expected and colon and kind in ("equals", "contains", "icontains", "regex", "llm-rubric", "similar"):
        test["assert"] = [{"type": kind, "value": value.strip()}]
    elif expected:
        test["assert"] = [{"type": "equals", "value": expected}]
    if row.get("__description"):
        test["description"] = row["__description"]
    for name in sorted(
        name for name in row if name.startswith("__") and name not in ("__expected", "__description")
    ):
        found.wrong(keys, f"the column {name!r} is not read")
    return test


class _Tests:
    """Makes cases of tests."""

    def __init__(
        self, found: Converting, prompts: list[Any], default: dict[str, Any], templates: Mapping[str, Any]
    ) -> None:
        self._found = found
        self._prompts = prompts
        self._default = default
        self._templates = templates
        self._names: set[str] = set()

    def read(self, test: dict[str, Any], number: int, keys: Keys) -> None:
        for name in sorted(test.keys() - TEST_KEYS):
            self._found.wrong((*keys, name), "is not read")
        for name in sorted(_mapping(test.get("options")) | _mapping(self._default.get("options"))):
            if name not in ("provider", "rubricPrompt"):
                self._found.wrong((*keys, "options", name), "is not read")
        values = {**_mapping(self._default.get("vars")), **_mapping(test.get("vars"))}
        asserts = [*_list(self._default.get("assert")), *_list(test.get("assert"))]
        if not asserts:
            self._found.wrong(keys, "assert: missing: nothing decides")
            return
        lengths = (len(value) for value in values.values() if isinstance(value, list))
        if len(self._found.cases) + len(self._prompts) * math.prod(lengths) > MOST_CASES:
            self._found.wrong(keys, f"more than {MOST_CASES} cases")
            return
        rounds = ((prompt, chosen) for prompt in self._prompts for chosen in _combinations(values))
        several = len(self._prompts) > 1 or any(isinstance(value, list) for value in values.values())
        for part, (prompt, variables) in enumerate(rounds, start=1):
            name = str(test.get("description") or f"test-{number}")[:150]
            self._case(self._free(f"{name} / {part}" if several else name), prompt, variables, asserts, keys)

    def _free(self, name: str) -> str:
        """An id that no case has yet: descriptions may be the same."""
        free = next(
            each
            for each in itertools.chain([name], (f"{name} #{n}" for n in itertools.count(2)))
            if each not in self._names
        )
        self._names.add(free)
        return free

    def _case(
        self, name: str, prompt: Any, values: Mapping[str, Any], asserts: list[Any], keys: Keys
    ) -> None:
        variables: dict[str, str] = {}
        for each, value in values.items():
            text = as_text(value)
            if text is None or text.startswith(FILE):
                self._found.wrong((*keys, "vars", each), "expected text or a number")
            variables[each] = text or ""

        def fill(text: str) -> str:
            if LOGIC.search(text):
                self._found.wrong(keys, f"templates with logic are not read: {text[:60]!r}")
            for lacking in missing(text, variables):
                self._found.wrong(keys, f"the variable {lacking!r} is not given")
            return filled(text, variables)

        asked = each_text(prompt, fill)
        found = []
        for number, raw in enumerate(asserts):
            try:
                found.append(assertion(each_text(self._referred(raw), fill)))
            except ValueError as error:
                self._found.wrong((*keys, "assert", number), str(error))
        case: dict[str, Any] = {"id": name, "variables": variables, "assertions": found, "template": False}
        case["prompt" if isinstance(asked, str) else "messages"] = asked
        self._found.add(case, keys)

    def _referred(self, raw: Any) -> Any:
        """The assertion with ``$ref: '#/assertionTemplates/NAME'`` replaced."""
        name = raw.get("$ref") if isinstance(raw, dict) else None
        if not isinstance(name, str):
            return raw
        template = self._templates.get(name.removeprefix("#/assertionTemplates/"))
        if template is None:
            raise ValueError(f"$ref: there is no {name!r}")
        return template


def _combinations(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    each = [value if isinstance(value, list) else [value] for value in values.values()]
    return (dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*each))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


PROMPTFOO = Format("promptfoo", matches, convert)
