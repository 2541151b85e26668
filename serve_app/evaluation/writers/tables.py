"""A report for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from serve_app.evaluation.report import Report
from serve_app.evaluation.target import BASELINE, CANDIDATE
from serve_app.evaluation.writers import words

MOST_LOST = 10
"""Cases that a terminal shows; files have all."""


def terminal(report: Report) -> str:
    """Columns of equal width."""
    blocks = ["\n".join(f"{name}: {text}" for name, text in words.about(report).items())]
    blocks.append(_columns([words.head(report), *words.cells(report, report.rows)]))
    if report.tags:
        rows = words.cells(report, report.tags)
        blocks.append(_columns([["score by tag, %", *words.head(report)[1:-1]], *(row[:-1] for row in rows)]))
    blocks.append(_lost(report))
    blocks.append("\n".join([*(f"Note: {note}." for note in report.notes), *words.sentences(report)]))
    return "\n\n".join(filter(None, blocks))


def markdown(report: Report) -> str:
    """Tables of figures, tags and cases."""
    lines = [f"# Evaluation: {_escaped(report.suite)}", "", *words.sentences(report), ""]
    lines += [f"- {name}: {_escaped(text)}" for name, text in words.about(report).items()]
    lines += [f"- note: {_escaped(note)}" for note in report.notes]
    lines += ["", *_table([words.head(report), *words.cells(report, report.rows)])]
    if report.tags:
        rows = words.cells(report, report.tags)
        lines += ["", "## Score by tag, %", ""]
        lines += _table([["tag (cases)", *words.head(report)[1:]], *rows])
    lines += ["", "## Cases", "", *_table([_case_head(), *_cases(report)])]
    for case in report.cases:
        for role, text in case.texts.items():
            lines += [
                "",
                f"### {_escaped(case.id)}, {role}",
                "",
                *(f"    {line}" for line in text.splitlines()),
            ]
    return "\n".join(lines) + "\n"


def _case_head() -> list[str]:
    return ["case", "tags", f"{BASELINE}, %", f"{CANDIDATE}, %", "failed by", "TTFT, ITL, end to end, ms"]


def _cases(report: Report) -> Iterable[list[str]]:
    for case in report.cases:
        why = "; ".join(case.reasons) if case.texts else words.bad_scorers(case.reasons)
        yield [
            case.id,
            ", ".join(case.tags),
            _percent(case.baseline),
            _percent(case.candidate),
            why,
            " / ".join(words.times(case.times, CANDIDATE)),
        ]


def _lost(report: Report) -> str:
    """The cases in which the candidate lost most."""
    lost = [
        (case.candidate - case.baseline, case)
        for case in report.cases
        if case.baseline is not None and case.candidate is not None and case.candidate < case.baseline
    ]
    if not lost:
        return ""
    lost.sort(key=lambda item: item[0])
    rows = [
        [case.id, _percent(case.baseline), _percent(case.candidate), words.bad_scorers(case.reasons)]
        for _, case in lost[:MOST_LOST]
    ]
    title = f"lost by the {CANDIDATE} ({len(lost)} cases)"
    return _columns([[title, f"{BASELINE}, %", f"{CANDIDATE}, %", "failed by"], *rows])


def _percent(value: float | None) -> str:
    return words.NONE if value is None else words.number(100 * value)


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return ["| " + " | ".join(map(_escaped, line)) + " |" for line in lines]


def _escaped(text: str) -> str:
    """Markdown takes HTML: no text of a suite or an answer may become a tag or another cell."""
    flat = " ".join(text.split())
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")
