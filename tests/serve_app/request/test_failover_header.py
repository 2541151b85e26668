"""`x-failover` goes before the settings' word."""

from __future__ import annotations

import pytest

from serve_app.errors import BadRequest
from serve_app.request.failover import wants_failover
from serve_app.request.headers import FAILOVER


@pytest.mark.parametrize("default", [True, False])
def test_a_request_that_says_nothing_gets_the_settings_word(default: bool) -> None:
    assert wants_failover({}, default) is default


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize(
    ("value", "wanted"), [("on", True), ("off", False), ("ON", True), ("Off", False), (" on ", True)]
)
def test_a_request_that_says_something_is_believed(value: str, wanted: bool, default: bool) -> None:
    assert wants_failover({FAILOVER.name: value}, default) is wanted


@pytest.mark.parametrize("value", ["", " ", "true", "1", "yes", "on,off", "o n", "x" * 1000])
def test_anything_else_is_refused_by_name(value: str) -> None:
    with pytest.raises(BadRequest) as caught:
        wants_failover({FAILOVER.name: value}, True)
    assert caught.value.message.startswith(f"Header `x-failover` is {value[:40]!r}; ")
    assert (caught.value.param, caught.value.code) == ("x-failover", "invalid_header")
