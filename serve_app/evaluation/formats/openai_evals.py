"""Samples of OpenAI's evals: JSON lines with `input` (messages or text) and `ideal` (text or several).

Their template `Match` is what decides, since samples do not name one: the answer begins with an ideal one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from serve_app.evaluation.document import Document
from serve_app.evaluation.formats.contract import Converting, Format, rows


def matches(document: Document) -> bool:
    lines = rows(document)
    return lines is not None and any("input" in row and "ideal" in row for row in lines)


def convert(document: Document, path: Path) -> Document:
    found = Converting(document)
    for number, row in enumerate(rows(document) or []):
        keys = (number,)
        ideal = row.get("ideal")
        wanted = ideal if isinstance(ideal, list) else [ideal]
        if not wanted or not all(isinstance(each, str | int | float) for each in wanted):
            found.wrong(keys, "ideal: expected text or a list of texts (model-graded evals are not read)")
            continue
        case: dict[str, Any] = {"id": f"sample-{number + 1}", "expected": ideal, "template": False}
        asked = row.get("input")
        if isinstance(asked, str):
            case["prompt"] = asked
        elif isinstance(asked, list):
            case["messages"] = asked
        else:
            found.wrong(keys, "input: expected messages or text")
            continue
        pattern = "|".join(re.escape(str(each).strip()) for each in wanted)
        case["assertions"] = [{"scorer": "regex", "pattern": rf"\A\s*(?:{pattern})"}]
        found.add(case, keys)
    return found.result(path.stem)


OPENAI_EVALS = Format("openai-evals", matches, convert)
