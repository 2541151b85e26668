"""The benchmark of capture: one of its two starts captures everything, the other nothing."""

from __future__ import annotations

from pathlib import Path

from benchmarks.capture import settings_of
from benchmarks.layer import settings_for

from serve_app.settings import parse_args


def test_one_start_captures_everything_and_the_other_nothing(tmp_path: Path) -> None:
    off, on = (
        parse_args(settings_for("http://127.0.0.1:1", **args), source="test")
        for args in ({}, settings_of(tmp_path))
    )
    assert off.feedback is None
    feedback = on.feedback
    assert feedback is not None
    assert feedback.capture is not None
    assert feedback.capture.tenants == {"default": 1.0}
