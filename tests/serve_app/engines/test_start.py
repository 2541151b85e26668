"""Marks of an engine's processes become phases that add up to the whole start."""

from __future__ import annotations

import pytest

from serve_app.engines.start import Mark, start_phases

TIMES = {"process": 100.0, "constructor": 103.0, "engine": 120.0}
CPU = [Mark("core", 105.0, process=1), Mark("load", 107.0, process=2), Mark("init", 118.0, 4.0, process=1)]


def phases(marks: list[Mark]) -> dict[str, float]:
    return start_phases(**TIMES, marks=marks)


def test_a_start_on_a_cpu() -> None:
    assert phases(CPU) == {
        "install": 3.0,
        "processes": 4.0,
        "load": 7.0,
        "compile": 0.0,
        "graphs": 0.0,
        "kv_cache": 4.0,
        "server": 2.0,
    }


def test_compilation_and_graphs_are_taken_out_of_what_the_core_calls_init() -> None:
    compiled = [Mark("compile", 116.0, 1.5, process=2), Mark("compile", 116.5, 2.0, process=3)]
    found = phases([*CPU, *compiled, Mark("graphs", 117.0, 1.0, process=2)])
    assert (found["compile"], found["graphs"], found["kv_cache"]) == (2.0, 1.0, 1.0)


def test_a_compilation_that_only_says_when_it_began_and_ended_counts_too() -> None:
    pair = [Mark("compile_began", 114.5, process=2), Mark("compile_ended", 117.0, process=2)]
    assert phases([*CPU, *pair])["compile"] == 2.5


def test_weights_whose_end_alone_was_noted_began_that_much_earlier() -> None:
    marks = [mark for mark in CPU if mark.kind != "load"]
    assert phases([*marks, Mark("loaded", 112.0, 4.5, process=2)])["load"] == 6.5


def test_workers_that_log_elsewhere_load_from_the_cores_begin_on() -> None:
    assert phases([mark for mark in CPU if mark.kind != "load"])["load"] == 9.0


def test_without_marks_the_engine_is_one_phase() -> None:
    assert phases([]) == {"install": 3.0, "engine": 17.0}


@pytest.mark.parametrize("marks", [[], CPU, CPU[1:], [*CPU, Mark("compile", 1.0, 99.0, process=2)]])
def test_phases_add_up(marks: list[Mark]) -> None:
    found = phases(marks)
    assert sum(found.values()) == pytest.approx(20.0)
    assert min(found.values()) >= 0.0
