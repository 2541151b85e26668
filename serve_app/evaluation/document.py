"""Reads YAML, JSON, JSON lines and CSV into plain values that know their lines."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from serve_app.errors import SuiteError
from serve_app.file_errors import said_of

MOST_BYTES = 64 << 20
MOST_VALUES = 100_000
"""Values of one YAML file with its aliases written out: a hundred bytes can become billions. JSON lines have
no such bound."""

MOST_DEPTH = 64
MOST_SHOWN = 60
"""Characters of a key in a message."""


Key = int | str
Keys = tuple[Key, ...]
"""The way to a value: ``("cases", 3, "id")``."""


@dataclass(frozen=True, slots=True)
class Document:
    """``source`` is the file's name in messages. ``lines`` knows the first line of some values, counted from
    1; a value that is not there stands where the nearest one around it does."""

    source: str
    value: Any
    lines: Mapping[Keys, int] = field(default_factory=dict)

    def where(self, keys: Keys) -> str:
        """``FILE:LINE``."""
        for length in range(len(keys), -1, -1):
            if keys[:length] in self.lines:
                return f"{self.source}:{self.lines[keys[:length]]}"
        return self.source

    def problem(self, keys: Keys, what: str) -> str:
        return f"{self.where(keys)}: {shown(keys)}{what}"


def shown(keys: Keys) -> str:
    """``("cases", 3, "id")`` as ``cases[3].id: ``; empty for no keys."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".")
    return f"{text}: " if text else ""


def read_text(path: Path) -> str:
    """
    Raises:
        SuiteError: the file is absent, too large or not UTF-8.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise SuiteError(f"{path}: larger than {MOST_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # a path with a null byte is a ValueError
        if isinstance(error, SuiteError):
            raise
        raise SuiteError(f"{path}: {said_of(error).splitlines()[0]}") from None


def parse_json(text: str, source: str) -> Document:
    """
    Raises:
        SuiteError: it is not JSON; the message names the line.
    """
    return Document(source, _json(text, source, 1), {(): 1})


def parse_json_lines(text: str, source: str) -> Document:
    """A list of one value for each line; empty lines are left out.

    Raises:
        SuiteError: a line is not JSON.
    """
    values: list[Any] = []
    lines: dict[Keys, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):  # U+2028 ends no line
        if line.strip():
            lines[(len(values),)] = number
            values.append(_json(line, source, number))
    return Document(source, values, lines)


def parse_csv(text: str, source: str) -> Document:
    """A list of mappings by the names in the first row.

    Raises:
        SuiteError: a row has more cells than the first, two columns have one name, or a cell is too long.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows: list[Any] = []
    lines: dict[Keys, int] = {}
    try:
        names = list(reader.fieldnames or ())
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SuiteError(f"{source}:1: {twice[0]!r}: two columns have this name")
        for row in reader:
            if None in row:
                raise SuiteError(f"{source}:{reader.line_num}: more cells than the first row has")
            lines[(len(rows),)] = reader.line_num
            rows.append({name: cell for name, cell in row.items() if cell is not None})
    except csv.Error as error:
        raise SuiteError(f"{source}:{reader.line_num}: {error}") from None
    return Document(source, rows, lines)


def _json(text: str, source: str, first: int) -> Any:
    try:
        return strict_json(text)
    except json.JSONDecodeError as error:
        raise SuiteError(f"{source}:{first + error.lineno - 1}: not JSON: {error.msg}") from None
    except RecursionError:
        raise SuiteError(f"{source}:{first}: nested too deeply") from None
    except ValueError as error:
        raise SuiteError(f"{source}:{first}: not JSON: {error}") from None


def strict_json(text: str) -> Any:
    """JSON as it is defined: no NaN, no infinite number, no key twice.

    Raises:
        ValueError: it is not.
        RecursionError: it is nested too deeply for Python.
    """
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {_twice(names)!r} stands twice")
    return found


def _twice(names: Sequence[str]) -> str:
    seen: set[str] = set()
    found = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    return found if len(found) <= MOST_SHOWN else found[:MOST_SHOWN] + "…"


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:20]} is too large")
    return value


PLAIN: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"(?:~|null|Null|NULL|)"), lambda _: None),
    (re.compile(r"(?:true|True|TRUE|false|False|FALSE)"), lambda text: text.lower() == "true"),
    (re.compile(r"[-+]?[0-9]+", re.ASCII), int),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII), _finite),
)
"""What unquoted text means, as in YAML 1.2: `yes`, `no`, `12:30` and `2024-05-01` are text."""

TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "map", "seq"))


def parse_yaml(text: str, source: str) -> Document:
    """One YAML document, with the line of each value.

    Raises:
        SuiteError: it is not YAML; a key stands twice or is no text; it has tags, merges (``<<``), or aliases
            that make it endless or too large.
    """
    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SuiteError(f"{source}:{line}: not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise SuiteError(f"{source}: not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise SuiteError(f"{source}: nested too deeply") from None
    reader = _YamlReader(source)
    return Document(source, None if node is None else reader.read(node, ()), reader.lines)


class _YamlReader:
    """Turns nodes into values."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[Keys, int] = {}
        self._left = MOST_VALUES

    def read(self, node: yaml.Node, keys: Keys) -> Any:
        self.lines[keys] = node.start_mark.line + 1
        self._left -= 1
        if self._left < 0:
            raise self._error(node, keys, f"more than {MOST_VALUES} values, aliases written out")
        if len(keys) > MOST_DEPTH:  # also an alias of what it stands in
            raise self._error(node, (), f"nested deeper than {MOST_DEPTH} levels")
        if node.tag not in TAGS:
            raise self._error(node, keys, f"the tag {node.tag!r} is not read")
        if isinstance(node, yaml.SequenceNode):
            return [self.read(inner, (*keys, number)) for number, inner in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, keys)
        return self._scalar(node, keys)

    def _mapping(self, node: yaml.MappingNode, keys: Keys) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, inner in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key, keys, "a key must be text")
            name = key.value
            if name in found:
                raise self._error(key, (*keys, name), "this key stands twice")
            if name == "<<" and key.style is None:
                raise self._error(key, keys, "merges (`<<`) are not read; `defaults` holds for all cases")
            found[name] = self.read(inner, (*keys, name))
        return found

    def _scalar(self, node: yaml.Node, keys: Keys) -> Any:
        text: str = node.value
        if isinstance(node, yaml.ScalarNode) and node.style is not None:  # quoted, or a block
            return text
        convert = next((convert for pattern, convert in PLAIN if pattern.fullmatch(text)), str)
        try:
            return convert(text)
        except ValueError as error:
            raise self._error(node, keys, str(error)) from None

    def _error(self, node: yaml.Node, keys: Keys, what: str) -> SuiteError:
        return SuiteError(f"{self.source}:{node.start_mark.line + 1}: {shown(keys)}{what}")
