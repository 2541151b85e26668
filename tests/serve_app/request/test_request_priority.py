"""`x-priority` is a digit; without it a request is of middling urgency."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.admission import body_priority, request_priority
from serve_app.errors import BadRequest
from serve_app.request.headers import PRIORITY


def test_a_request_that_says_nothing_is_in_the_middle() -> None:
    assert request_priority({}) == 5


@pytest.mark.parametrize("digit", range(10))
def test_a_digit_is_the_priority(digit: int) -> None:
    assert request_priority({PRIORITY.name: str(digit)}) == digit


@pytest.mark.parametrize("value", [" 3", "3 ", "\t3 "])
def test_blanks_around_it_do_not_matter(value: str) -> None:
    assert request_priority({PRIORITY.name: value}) == 3


@pytest.mark.parametrize(
    "value", ["", " ", "10", "-1", "+1", "5.0", "1e0", "high", "0x1", "1 2", "1,2", "３", "٣"]
)
def test_anything_else_is_refused_by_name(value: str) -> None:
    with pytest.raises(BadRequest) as caught:
        request_priority({PRIORITY.name: value})
    assert repr(value) in caught.value.message
    assert "a digit from 0 (first) to 9 (last)" in caught.value.message
    assert (caught.value.param, caught.value.code) == ("x-priority", "invalid_header")


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(BadRequest) as caught:
        request_priority({PRIORITY.name: "9" * 1000})
    assert len(caught.value.message) < 150


@pytest.mark.parametrize(("asked", "best", "given"), [(None, 0, 5), (None, 7, 7), ("0", 3, 3), ("9", 3, 9)])
def test_nobody_comes_before_its_own_best(asked: str | None, best: int, given: int) -> None:
    headers = {} if asked is None else {PRIORITY.name: asked}
    assert request_priority(headers, best) == given


@pytest.mark.parametrize(
    ("value", "read"),
    [(-3, -3), (7, 7), (7.0, 7), ("7", 7), ("-7", -7), (True, 1), (10**400, None)]
    + [(value, None) for value in (None, 1.5, "high", "nan", "1e999", [], {}, float("inf"))],
)
def test_the_bodys_priority_is_read_as_vllm_reads_it(value: Any, read: int | None) -> None:
    assert body_priority({"priority": value}) == read


def test_a_body_may_say_nothing_of_priority() -> None:
    assert body_priority({}) is None
