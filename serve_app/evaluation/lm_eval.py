"""Results of lm-evaluation-harness (`lm_eval --log_samples`), compared document by document.

That harness reads likelihoods, as many of its tasks need, where `promptly eval` asks for texts. Its file
`samples_TASK_DATE.jsonl` has one line for each document (and filter); means alone cannot be compared in
pairs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve_app.errors import SuiteError
from serve_app.evaluation.document import Document, parse_json_lines, read_text

SAMPLES = re.compile(r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT[\w.:-]+))?\.jsonl")
METRICS = ("exact_match", "acc", "acc_norm", "pass@1", "f1", "em")
"""Metrics in the order in which one is chosen: those that score one document from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Task:
    """``scores``: by the document's id. ``digests``: of documents, as the harness counts them."""

    name: str
    metric: str
    filter: str
    scores: Mapping[str, float]
    digests: Mapping[str, str]


def load_results(path: Path, metric: str | None = None) -> dict[str, Task]:
    """The tasks of a samples file, or of a folder that has some, the newest of each task.

    Raises:
        SuiteError: there are no samples, or they lack the metric; the message names file and line.
    """
    files = [path]
    if path.is_dir():
        files = sorted(path.rglob("samples_*.jsonl"), key=lambda each: each.name)
    if not files:
        raise SuiteError(f"{path}: there is no samples_*.jsonl (run lm_eval with --log_samples)")
    newest = {_task_name(each): each for each in files}
    return {name: _task(name, each, metric) for name, each in newest.items()}


def _task_name(path: Path) -> str:
    """Dates sort by themselves, so that of one task the last file is the newest."""
    found = SAMPLES.fullmatch(path.name)
    return found["task"] if found else path.stem


def _task(name: str, path: Path, metric: str | None) -> Task:
    document = parse_json_lines(read_text(path), str(path))
    lines = [line for line in document.value if isinstance(line, dict) and "doc_id" in line]
    if not lines:
        raise SuiteError(f"{path}: there is no line with `doc_id`: these are no samples of lm_eval")
    chosen = metric or _metric(lines[0], path)
    used = str(lines[0].get("filter", "none"))
    scores: dict[str, float] = {}
    digests: dict[str, str] = {}
    for number, line in enumerate(document.value):
        if not isinstance(line, dict) or str(line.get("filter", "none")) != used:
            continue
        key = str(line.get("doc_id"))
        if key in scores:
            raise _error(document, number, f"doc_id: {key} stands twice")
        scores[key] = _score(line.get(chosen), document, number, chosen)
        digests[key] = str(line.get("doc_hash", ""))
    return Task(name, chosen, used, scores, digests)


def _metric(line: Mapping[str, Any], path: Path) -> str:
    found = next((name for name in METRICS if isinstance(line.get(name), int | float)), None)
    if found is None:
        given = line.get("metrics")
        known = ", ".join(map(str, given)) if isinstance(given, list) else "unknown"
        raise SuiteError(f"{path}: no metric from 0 to 1 is known (it has: {known}); name one")
    return found


def _score(value: Any, document: Document, number: int, metric: str) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _error(document, number, f"{metric}: expected a number from 0 to 1")
    return float(value)


def _error(document: Document, number: int, what: str) -> SuiteError:
    return SuiteError(document.problem((number,), what))


def paired(baseline: Task, candidate: Task) -> tuple[list[float], list[float]]:
    """The scores of the documents that both have.

    Raises:
        SuiteError: they were not asked the same: other metric or filter, other documents.
    """
    for what in ("metric", "filter"):
        one, other = getattr(baseline, what), getattr(candidate, what)
        if one != other:
            raise SuiteError(f"{baseline.name}: the baseline has the {what} {one!r}, the candidate {other!r}")
    if baseline.scores.keys() != candidate.scores.keys():
        lacking = len(baseline.scores.keys() ^ candidate.scores.keys())
        raise SuiteError(f"{baseline.name}: {lacking} documents are in one of the two only")
    changed = [key for key, digest in baseline.digests.items() if digest != candidate.digests[key]]
    if changed:
        raise SuiteError(f"{baseline.name}: document {changed[0]} is not the same in both")
    keys = list(baseline.scores)
    return [baseline.scores[key] for key in keys], [candidate.scores[key] for key in keys]
