"""The benchmark of capture compares both starts with the bare engine beside them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.capture import CAPTURED, PLAIN, figures_of, settings_of
from benchmarks.layer import settings_for
from support.measured_pairs import OFF, ON, assert_relative_to_the_bare_engines

from serve_app.settings import parse_args


def test_throughput_with_capture_is_relative_to_that_without() -> None:
    assert_relative_to_the_bare_engines(figures_of([{CAPTURED: ON, PLAIN: OFF}]))


def test_one_start_captures_everything_and_the_other_nothing(tmp_path: Path) -> None:
    given = {
        name: parse_args(settings_for("http://127.0.0.1:1", **settings_of(name, tmp_path)), source="test")
        for name in (CAPTURED, PLAIN)
    }
    assert given[PLAIN].feedback is None
    feedback = given[CAPTURED].feedback
    assert feedback is not None
    assert feedback.capture is not None
    assert feedback.capture.tenants == {"default": 1.0}
