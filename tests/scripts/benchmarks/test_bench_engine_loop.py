"""The benchmark of what tokens cost the process that serves an engine."""

from __future__ import annotations

from benchmarks.engine_loop import CHUNKS, PROMETHEUS, RAY, figures_of
from benchmarks.relay_cost import Cost


def test_each_part_is_shown_for_each_size_of_a_chunk() -> None:
    costs = {chunk: [Cost({"HAProxy": 0.04 / chunk, "gateway": 0.06 / chunk}, 0)] for chunk in CHUNKS}
    figures = figures_of([{RAY: 5.0, PROMETHEUS: 1.0}], costs)
    shown = {(figure.name, figure.series): figure.median for figure in figures}
    assert shown["one `observe`", RAY] == 5.0
    assert shown["CPU per 1,000 tokens: gateway", "4 in a chunk"] == 0.015
    assert len(shown) == 2 + 2 * len(CHUNKS)


def test_a_repeat_with_errors_has_no_figure() -> None:
    costs = {1: [Cost({"HAProxy": 0.04, "gateway": 0.06}, 1)]}
    assert len(figures_of([{RAY: 5.0, PROMETHEUS: 1.0}], costs)) == 2
