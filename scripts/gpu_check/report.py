"""The report of a run, in Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.table import markdown, number

from gpu_check.contract import Finding, Reading, Verdict
from gpu_check.runner import Result

MARKDOWN, JSON = "README.md", "check_gpu.json"


def write(folder: Path, about: Mapping[str, str], results: Sequence[Result]) -> None:
    """Both files, whole."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKDOWN).write_text(in_markdown(about, results), encoding="utf-8")
    text = json.dumps(in_json(about, results), indent=2, ensure_ascii=False)
    (folder / JSON).write_text(text + "\n", encoding="utf-8")


def in_markdown(about: Mapping[str, str], results: Sequence[Result]) -> str:
    head = "\n".join(f"- {name}: {value}" for name, value in about.items())
    parts = [f"# Check of the engines on this machine\n\n{head}\n- {summary(results)}"]
    for result in results:
        rows = [(each.subject, str(each.verdict), shown(each)) for each in result.findings]
        title = f"## {result.check.name} ({result.seconds:.0f} s)\n\n{result.check.shows}"
        table = markdown(["finding", "verdict", "figures and reason"], map(_cells, rows))
        parts.append(f"{title}\n\n{table}")
    return "\n\n".join(parts) + "\n"


def in_json(about: Mapping[str, str], results: Sequence[Result]) -> dict[str, Any]:
    checks = [
        {
            "check": result.check.name,
            "seconds": round(result.seconds, 1),
            "findings": msgspec.to_builtins(result.findings),
        }
        for result in results
    ]
    return {"about": dict(about), "checks": checks}


def lines(result: Result) -> Iterator[str]:
    """What the terminal shows of a check."""
    yield f"{result.check.name} ({result.seconds:.0f} s)"
    for each in result.findings:
        first, *more = shown(each).splitlines() or [""]
        yield f"  {each.verdict:8} {each.subject}{': ' if first else ''}{first}"
        yield from (f"           {line}" for line in more)


def summary(results: Sequence[Result]) -> str:
    return ", ".join(f"{verdict}: {sum(each.count(verdict) for each in results)}" for verdict in Verdict)


def shown(found: Finding) -> str:
    figures = ", ".join(map(_figure, found.figures))
    return "; ".join(filter(None, [figures, found.reason]))


def _figure(each: Reading) -> str:
    wanted = f" ({each.target})" if each.target else ""
    return f"{each.name} {number(each.value)}{' ' if each.unit else ''}{each.unit}{wanted}"


def _cells(row: Sequence[str]) -> list[str]:
    return [cell.replace("\n", "<br>") for cell in row]
