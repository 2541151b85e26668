"""The cache's decision on labelled pairs: figures, tables and a plot."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cache_lab.pairs import GROUPS, LabelledPair
from cache_lab.rates import AS_IT_IS, MIXES, TRAFFIC, Interval, Rates, rates, wilson
from serve_app.cache.decision import Decision, Verdict
from serve_app.settings.cache import Strictness

SETTINGS: tuple[Strictness, ...] = ("strict", "balanced")
COSINES = tuple(float(value) for value in np.round(np.arange(0.70, 1.0, 0.02), 2))
SCORES = tuple(float(value) for value in np.round(np.arange(0.30, 1.0, 0.02), 2))
USUAL = 0.90
HIT = "hit"


@dataclass(frozen=True)
class Judged:
    """One setting's verdict on every pair, and the time (ms) of each that the verifier decided."""

    name: str
    verdicts: Sequence[Verdict]
    times_ms: Sequence[float]

    @property
    def hits(self) -> list[bool]:
        return [verdict.hit for verdict in self.verdicts]

    @property
    def scores(self) -> list[float]:
        """The verifier's scores; 0 where an earlier step refused the hit."""
        return [verdict.scores.get("verifier", 0.0) for verdict in self.verdicts]


@dataclass(frozen=True)
class Row:
    """One setting in one line."""

    name: str
    recall: Interval
    false_share: Mapping[str, Interval]
    decision_ms_p50: float | None = None


@dataclass(frozen=True)
class Part:
    """Pairs that have something in common: how many of each group there are, and which share of them hits."""

    name: str
    pairs: Mapping[str, int]
    hits: Mapping[str, Interval]


PARTS: Mapping[str, Callable[[LabelledPair], str]] = {
    "word overlap": lambda pair: pair.band,
    "language": lambda pair: pair.language,
    "domain": lambda pair: pair.domain,
    "kind": lambda pair: pair.stratum,
}


def judge(
    name: str,
    decision: Decision,
    pairs: Sequence[LabelledPair],
    cosines: Sequence[float],
) -> Judged:
    """Judge each pair and time it. Both texts are analysed again for each pair, as for a request."""
    verdicts, times = [], []
    for pair, cosine in zip(pairs, cosines, strict=True):
        started = time.perf_counter()
        verdict = decision.judge(decision.read(pair.query), decision.read(pair.candidate), cosine)
        took_ms = (time.perf_counter() - started) * 1000
        if verdict.scores:
            times.append(took_ms)
        verdicts.append(verdict)
    return Judged(name, verdicts, times)


@dataclass(frozen=True)
class Report:
    """All figures of one evaluation."""

    source: str
    embedder: str
    pairs: Sequence[LabelledPair]
    cosines: Sequence[float]
    judged: Sequence[Judged]
    seen: str = ""
    """Whether training saw these pairs, in a sentence."""

    def rows(self) -> list[Row]:
        usual = row(f"cosine ≥ {USUAL:.2f} alone", rates(self.pairs, self._above(USUAL)))
        ours = [
            row(f"{judged.name} setting", rates(self.pairs, judged.hits), judged.times_ms)
            for judged in self.judged
        ]
        return [usual, *ours]

    def cosine_curve(self) -> list[Row]:
        return [row(f"{least:.2f}", rates(self.pairs, self._above(least))) for least in COSINES]

    def score_curve(self) -> list[Row]:
        """Along the verifier's threshold; empty without a verifier."""
        scores = self.judged[0].scores
        if not any(scores):
            return []
        return [
            row(f"{least:.2f}", rates(self.pairs, [score >= least for score in scores])) for least in SCORES
        ]

    def strata(self) -> dict[str, dict[str, float]]:
        """Share of hits by stratum and setting."""
        names = sorted({pair.stratum for pair in self.pairs}, key=lambda name: (name.split(":")[0], name))
        settings = {f"cosine {USUAL:.2f}": self._above(USUAL)} | {
            each.name: each.hits for each in self.judged
        }
        return {
            stratum: {
                name: statistics.fmean(
                    hit for pair, hit in zip(self.pairs, hits, strict=True) if pair.stratum == stratum
                )
                for name, hits in settings.items()
            }
            for stratum in names
        }

    def parts(self) -> dict[str, list[Part]]:
        """The first setting by language, domain, word overlap and kind of pair; a part without pairs is not
        named."""
        judged = list(zip(self.pairs, self.judged[0].hits, strict=True))
        found = {}
        for title, key in PARTS.items():
            names = sorted({key(pair) for pair in self.pairs} - {""})
            found[title] = [part(name, [each for each in judged if key(each[0]) == name]) for name in names]
        return found

    def reasons(self) -> dict[str, dict[str, int]]:
        """How often the first setting gave each reason, by group."""
        counted: dict[str, dict[str, int]] = {}
        for pair, verdict in zip(self.pairs, self.judged[0].verdicts, strict=True):
            of = counted.setdefault(verdict.reason or HIT, dict.fromkeys(GROUPS, 0))
            of[pair.group] += 1
        return counted

    def values(self) -> dict[str, Any]:
        return {
            "pairs": self.source,
            "embedder": self.embedder,
            "rows": [asdict(each) for each in self.rows()],
            "cosine_curve": [asdict(each) for each in self.cosine_curve()],
            "score_curve": [asdict(each) for each in self.score_curve()],
            "training": self.seen,
            "parts": {title: [asdict(each) for each in parts] for title, parts in self.parts().items()},
            "strata": self.strata(),
            "reasons": self.reasons(),
        }

    def markdown(self) -> str:
        parts = [
            f"# Semantic cache on {len(self.pairs)} pairs of {self.source}\n",
            f"Embedder {self.embedder}. Shares in per cent, 95 % intervals in brackets. {self.seen}\n",
            _rows_table(self.rows()),
            *(
                _parts_section(self.judged[0].name, title, parts)
                for title, parts in self.parts().items()
                if parts
            ),
            "\n## Share of hits by stratum\n",
            _strata_table(self.strata()),
            f"\n## Reasons of the {self.judged[0].name} setting\n",
            _reasons_table(self.reasons()),
            "\n## Along the verifier's threshold\n",
            _rows_table(self.score_curve()),
            "\n## Along a cosine threshold alone\n",
            _rows_table(self.cosine_curve()),
        ]
        return "\n".join(parts) + "\n"

    def _above(self, least: float) -> list[bool]:
        return [cosine >= least for cosine in self.cosines]


def part(name: str, judged: Sequence[tuple[LabelledPair, bool]]) -> Part:
    by_group = {group: [hit for pair, hit in judged if pair.group == group] for group in GROUPS}
    return Part(
        name,
        {group: len(hits) for group, hits in by_group.items()},
        {group: wilson(sum(hits), len(hits)) for group, hits in by_group.items()},
    )


def row(name: str, found: Rates, times_ms: Sequence[float] | None = None) -> Row:
    false_share = {mix: found.false_share(mix) for mix in (*MIXES, AS_IT_IS)}
    return Row(name, found.recall(), false_share, statistics.median(times_ms) if times_ms else None)


def _rows_table(rows: Sequence[Row]) -> str:
    mixes = (*MIXES, AS_IT_IS)
    head = ["", "recall", *(f"false share, {mix}" for mix in mixes), "decision p50"]
    lines = [
        [
            each.name,
            _share(each.recall),
            *(_share(each.false_share[mix]) for mix in mixes),
            "" if each.decision_ms_p50 is None else f"{each.decision_ms_p50:.2f} ms",
        ]
        for each in rows
    ]
    return _table(head, lines)


def _strata_table(strata: Mapping[str, Mapping[str, float]]) -> str:
    settings = list(next(iter(strata.values())))
    lines = [[name, *(f"{100 * rate:.0f}" for rate in rates.values())] for name, rates in strata.items()]
    return _table(["stratum", *settings], lines)


def _parts_section(setting: str, title: str, parts: Sequence[Part]) -> str:
    lines = [[each.name, *(_hits_of(each, group) for group in GROUPS)] for each in parts]
    return f"\n## The {setting} setting by {title}: share of hits\n\n" + _table(["", *GROUPS], lines)


def _hits_of(part: Part, group: str) -> str:
    return f"{_share(part.hits[group])} of {part.pairs[group]}" if part.pairs[group] else "–"


def _reasons_table(reasons: Mapping[str, Mapping[str, int]]) -> str:
    ordered = sorted(reasons.items(), key=lambda item: -sum(item[1].values()))
    return _table(["reason", *GROUPS], [[name, *map(str, by.values())] for name, by in ordered])


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def _share(interval: Interval) -> str:
    return f"{100 * interval.value:.1f} ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


def plot(report: Report, path: Path) -> None:
    """Recall against false share in traffic: along the verifier's threshold, and a cosine's alone."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    curves = {"a cosine threshold alone": report.cosine_curve(), "guards and verifier": report.score_curve()}
    for name, curve in curves.items():
        axes.plot(
            [100 * each.recall.value for each in curve],
            [100 * each.false_share[TRAFFIC].value for each in curve],
            marker=".",
            label=name,
        )
    for each in report.rows():
        axes.annotate(each.name, (100 * each.recall.value, 100 * each.false_share[TRAFFIC].value))
    axes.set(xlabel="recall, %", ylabel=f"wrong hits among hits, % ({TRAFFIC})", title=report.source)
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)
