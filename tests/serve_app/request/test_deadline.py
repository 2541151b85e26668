"""A request may name its own deadline, in whole milliseconds from 1 to a day."""

from __future__ import annotations

import pytest

from serve_app.errors import BadRequest
from serve_app.request.deadline import request_timeout_s
from serve_app.request.headers import DAY_MS, TIMEOUT

HEADER = TIMEOUT.name


def test_the_default_holds_for_a_request_that_names_none() -> None:
    assert request_timeout_s({}, 600.0) == 600.0
    assert request_timeout_s({"other": "5"}, 0.5) == 0.5


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("1", 0.001), ("1500", 1.5), (" 250 ", 0.25), ("007", 0.007), (str(DAY_MS), 86_400.0)],
)
def test_the_header_is_in_milliseconds(value: str, seconds: float) -> None:
    assert request_timeout_s({HEADER: value}, 600.0) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "0",
        "000",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "0x10",
        "1_000",
        "nan",
        "inf",
        "soon",
        "²",
        "½",
        "10ms",
        "1 2",
    ],
)
def test_a_value_that_is_no_number_of_milliseconds_is_refused(value: str) -> None:
    with pytest.raises(BadRequest) as caught:
        request_timeout_s({HEADER: value}, 600.0)
    assert (caught.value.param, caught.value.code) == (HEADER, "invalid_header")
    assert repr(value) in caught.value.message


@pytest.mark.parametrize("value", [str(DAY_MS + 1), "9" * 100, "9" * 4301, "9" * 60_000])
def test_a_value_beyond_a_day_is_refused_and_shown_in_part(value: str) -> None:
    with pytest.raises(BadRequest) as caught:
        request_timeout_s({HEADER: value}, 600.0)
    assert caught.value.param == HEADER
    assert len(caught.value.message) < 200
