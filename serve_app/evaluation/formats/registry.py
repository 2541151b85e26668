"""All formats by name, and which of them a file has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from serve_app.errors import SuiteError
from serve_app.evaluation.document import (
    Document,
    parse_csv,
    parse_json,
    parse_json_lines,
    parse_yaml,
    read_text,
)
from serve_app.evaluation.formats.contract import Format
from serve_app.evaluation.formats.deepeval import DEEPEVAL
from serve_app.evaluation.formats.openai_evals import OPENAI_EVALS
from serve_app.evaluation.formats.own import OWN
from serve_app.evaluation.formats.promptfoo import PROMPTFOO
from serve_app.evaluation.formats.ragas import RAGAS

FORMATS: Mapping[str, Format] = {each.name: each for each in (OWN, PROMPTFOO, OPENAI_EVALS, RAGAS, DEEPEVAL)}
"""Formats in the order in which they are tried."""

PARSERS: Mapping[str, Callable[[str, str], Document]] = {
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".json": parse_json,
    ".jsonl": parse_json_lines,
    ".csv": parse_csv,
}


def read_document(path: Path, format_name: str | None) -> Document:
    """A file of any format, in the shape of a suite.

    Raises:
        SuiteError: it cannot be read, or its format is not known.
    """
    parse = PARSERS.get(path.suffix.lower())
    if parse is None:
        raise SuiteError(f"{path}: expected a file that ends with one of: {', '.join(PARSERS)}")
    document = parse(read_text(path), str(path))
    return _format(document, format_name).convert(document, path)


def _format(document: Document, name: str | None) -> Format:
    if name is not None:
        if name not in FORMATS:
            raise SuiteError(f"unknown format {name!r}; expected one of: {', '.join(FORMATS)}")
        return FORMATS[name]
    found = next((each for each in FORMATS.values() if each.matches(document)), None)
    if found is not None:
        return found
    if isinstance(document.value, dict):
        raise SuiteError(f"{document.where(())}: cases: missing (or name the format: {', '.join(FORMATS)})")
    raise SuiteError(f"{document.where(())}: there is no case of a known format ({', '.join(FORMATS)})")
