"""Waiting times by formula, against cases that can be worked out by hand."""

from __future__ import annotations

import math

import pytest

from serve_app.planning import erlang_c, mean_wait_s


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_with_one_server_the_load_is_the_chance_to_wait(load: float) -> None:
    assert erlang_c(1, load) == pytest.approx(load)


def test_two_servers_with_one_erlang_make_a_third_wait() -> None:
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)


def test_many_servers_agree_with_the_sum_of_the_definition() -> None:
    servers, offered = 12, 9.0
    top = offered**servers / math.factorial(servers) * servers / (servers - offered)
    below = sum(offered**count / math.factorial(count) for count in range(servers))
    assert erlang_c(servers, offered) == pytest.approx(top / (below + top))


def test_a_thousand_servers_are_no_overflow() -> None:
    assert 0 < erlang_c(2000, 1990.0) < 1


def test_one_server_waits_as_m_m_1_says() -> None:
    assert mean_wait_s(8.0, 0.1, 1) == pytest.approx(0.8 / (10.0 - 8.0))


def test_even_service_halves_the_wait() -> None:
    assert mean_wait_s(8.0, 0.1, 1, 1.0, 0.0) == pytest.approx(mean_wait_s(8.0, 0.1, 1) / 2)


def test_too_much_load_waits_for_ever() -> None:
    assert mean_wait_s(10.0, 0.1, 1) == math.inf
    assert erlang_c(3, 3.0) == 1.0
