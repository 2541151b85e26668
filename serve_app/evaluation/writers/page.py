"""A report as one page: no scripts, nothing from other hosts, plots as SVG inside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from serve_app.evaluation.report import TITLES, Report, Row
from serve_app.evaluation.target import BASELINE, CANDIDATE
from serve_app.evaluation.verdict import Verdict
from serve_app.evaluation.writers import words

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Also if an answer's text should ever get through unescaped, it can load and run nothing."""

STYLE = """
:root { color-scheme: light dark; --line: #8884; --worse: #d55e00; --good: #009e73; --open: #999;
  --baseline: #0072b2; --candidate: #e69f00; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.verdict { padding: .6rem 1rem; border-left: .4rem solid var(--open); background: #8881; }
.worse { border-color: var(--worse); } .good { border-color: var(--good); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: .5rem; }
dt { font-weight: 600; float: left; clear: left; width: 8rem; } dd { margin-left: 9rem; }
"""
CLASSES = {Verdict.WORSE: "worse", Verdict.NOT_WORSE: "good", Verdict.UNDECIDED: "open"}
COLOURS = {Verdict.WORSE: "var(--worse)", Verdict.NOT_WORSE: "var(--good)", Verdict.UNDECIDED: "var(--open)"}

WIDTH, LEFT, RIGHT, ROW_HEIGHT = 800, 210, 120, 34
HEIGHT, FOOT = 240, 40


def as_page(report: Report) -> str:
    """The whole document. Every text of a suite, a target or an answer is escaped."""
    title = f"Evaluation: {escape(report.suite)}"
    found = CLASSES[report.verdict] if report.verdict is not None and not report.unusable else "open"
    parts = [
        f"<h1>{title}</h1>",
        f'<div class="verdict {found}">'
        + "".join(f"<p>{escape(line)}</p>" for line in words.sentences(report))
        + "</div>",
        _definitions(report),
        *(f"<p>Note: {escape(note)}.</p>" for note in report.notes),
        "<h2>Figures</h2>",
        _table(words.head(report), words.cells(report, report.rows)),
        *_changes(report),
        *_distributions(report),
        *_tags(report),
        "<h2>Cases</h2>",
        _cases(report),
        *_answers(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _definitions(report: Report) -> str:
    items = (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in words.about(report).items())
    return f"<dl>{''.join(items)}</dl>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _tags(report: Report) -> Iterable[str]:
    if report.tags:
        yield "<h2>Score by tag, %</h2>"
        yield _table(["tag (cases)", *words.head(report)[1:]], words.cells(report, report.tags))


def _cases(report: Report) -> str:
    head = ["case", "tags", f"{BASELINE}, %", f"{CANDIDATE}, %", "failed by", *TITLES.values()]
    rows = (
        [
            case.id,
            ", ".join(case.tags),
            *(
                words.NONE if value is None else words.number(100 * value)
                for value in (case.baseline, case.candidate)
            ),
            case.error or ("; ".join(case.reasons) if case.texts else words.bad_scorers(case.reasons)),
            *words.times(case.times, CANDIDATE),
        ]
        for case in report.cases
    )
    return _table(head, rows)


def _answers(report: Report) -> Iterable[str]:
    if any(case.texts for case in report.cases):
        yield "<h2>Answers</h2>"
    for case in report.cases:
        for role, text in case.texts.items():
            yield (
                f"<details><summary>{escape(case.id)}, {escape(role)}</summary>"
                f"<pre>{escape(text)}</pre></details>"
            )


# ---- plots -----------------------------------------------------------------------------------------------


def _changes(report: Report) -> Iterable[str]:
    """The intervals of what is judged, with zero change and the margin."""
    judged = [row for row in report.rows if row.judgement is not None and row.change is not None]
    for title, rows, unit in (
        ("Change of scores", [row for row in judged if row.is_share], "points"),
        ("Change of times", [row for row in judged if not row.is_share], "%"),
    ):
        if rows:
            yield f"<h2>{title}, {unit}</h2>" + _intervals(rows)


def _intervals(rows: Sequence[Row]) -> str:
    spans = [_span(row) for row in rows]
    low = min(0.0, *(part for span in spans for part in span))
    high = max(0.0, *(part for span in spans for part in span))
    width = (high - low) or 1.0

    def x(amount: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (amount - low) / width, 1)

    height = ROW_HEIGHT * len(rows) + FOOT
    shapes = [_line(x(0), 0, x(0), height - FOOT, "currentColor")]
    for place, (row, (start, middle, end, margin)) in enumerate(zip(rows, spans, strict=True)):
        y = ROW_HEIGHT * place + ROW_HEIGHT / 2
        colour = COLOURS[row.judgement.verdict] if row.judgement is not None else "currentColor"
        shapes += [
            f'<text x="0" y="{y + 4}">{escape(row.title)}</text>',
            f'<line x1="{x(start)}" y1="{y}" x2="{x(end)}" y2="{y}" stroke="{colour}" stroke-width="4"/>',
            f'<circle cx="{x(middle)}" cy="{y}" r="6" fill="{colour}"/>',
            _line(x(margin), y - 12, x(margin), y + 12, "var(--worse)", dash="4 3"),
            f'<text x="{WIDTH - RIGHT + 10}" y="{y + 4}">{_verdict(row)}</text>',
        ]
    foot = height - FOOT + 16
    shapes += [
        f'<text x="{x(amount)}" y="{foot}" text-anchor="middle">{words.number(amount)}</text>'
        for amount in dict.fromkeys((low, 0.0, high))
    ]
    shapes.append(f'<text x="{LEFT}" y="{foot + 18}">dashed: the margin</text>')
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(shapes)}</svg>'


def _span(row: Row) -> tuple[float, float, float, float]:
    """Low, estimate, high and margin, in points or percent."""
    if row.change is None or row.judgement is None:
        raise ValueError(f"{row.key} is not judged")
    if row.is_share:
        low, middle, high = (100 * part for part in (row.change.low, row.change.estimate, row.change.high))
        return low, middle, high, -100 * row.judgement.margin
    low, middle, high = (100 * (part - 1) for part in (row.change.low, row.change.estimate, row.change.high))
    return low, middle, high, 100 * math.expm1(row.judgement.margin)


def _distributions(report: Report) -> Iterable[str]:
    """How the times of the cases are distributed: the share of cases that take at most so long."""
    for name, title in TITLES.items():
        sides = {
            role: sorted(
                1000 * case.times[role][name] for case in report.cases if name in case.times.get(role, {})
            )
            for role in (BASELINE, CANDIDATE)
        }
        if sides[CANDIDATE]:
            yield f"<h2>{escape(title)}: share of cases that take at most so long</h2>"
            yield _curves({role: values for role, values in sides.items() if values})


def _curves(sides: dict[str, list[float]]) -> str:
    most = max(values[-1] for values in sides.values()) or 1.0
    right, bottom = WIDTH - 20, HEIGHT - FOOT
    shapes = [_line(40, bottom, right, bottom, "currentColor"), _line(40, 10, 40, bottom, "currentColor")]
    for place, (role, values) in enumerate(sides.items()):
        points = [
            f"{40 + (right - 40) * value / most:.1f},{_y(number, len(values), bottom)}"
            for number, value in enumerate(values, 1)
        ]
        shapes.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="var(--{role})" stroke-width="2"/>'
        )
        shapes.append(
            f'<text x="{60 + 120 * place}" y="{HEIGHT - 2}" style="fill: var(--{role})">{role}</text>'
        )
    for share in (0.0, 0.5, 1.0):
        x, amount = 40 + (right - 40) * share, words.number(most * share)
        shapes.append(f'<text x="{x:.0f}" y="{bottom + 16}" text-anchor="middle">{amount}</text>')
        shapes.append(f'<text x="0" y="{bottom - (bottom - 10) * share + 4:.0f}">{share:.0%}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(shapes)}</svg>'


def _y(number: int, count: int, bottom: int) -> str:
    return f"{bottom - (bottom - 10) * number / count:.1f}"


def _verdict(row: Row) -> str:
    return escape(words.verdict(row).partition(";")[0])


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}"{dashed}/>'
