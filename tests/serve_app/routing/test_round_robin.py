"""Everybody's turn comes as often as the weights say."""

from __future__ import annotations

from collections import Counter

from samples import make_report

from serve_app.fleet import FleetTable
from serve_app.routing import RoutingRequest
from serve_app.routing.round_robin import round_robin

REQUEST = RoutingRequest(10.0)


def table_of(**weights: float) -> FleetTable:
    table = FleetTable({"m": None})
    table.update("m", [make_report(name, weight=weight) for name, weight in weights.items()], 0.0)
    return table


def sent(table: FleetTable, requests: int, now: float = 0.0) -> list[str]:
    names = []
    for _ in range(requests):
        member = round_robin(REQUEST, table.candidates("m", now))[0]
        table.send(member, 10.0, now)
        names.append(member.name)
    return names


def spread(names: list[str]) -> int:
    """How many more one of three had than another."""
    counts = Counter(names)
    assert len(counts) == 3
    return max(counts.values()) - min(counts.values())


def test_members_take_turns() -> None:
    assert sent(table_of(c=1, a=1, b=1), 6) == ["a", "b", "c", "a", "b", "c"]


def test_weights_are_shares() -> None:
    assert Counter(sent(table_of(a=3, b=1, c=0.5), 90)) == {"a": 60, "b": 20, "c": 10}


def test_a_share_is_spread_over_time() -> None:
    names = sent(table_of(a=3, b=1), 40)
    assert all(Counter(names[start : start + 4])["b"] == 1 for start in range(0, 40, 4))


def test_a_member_that_comes_back_is_not_flooded() -> None:
    table = table_of(a=1, b=1, c=1)
    away = table.members("m")[0]
    table.mark_unreachable(away, 0.0)
    assert "a" not in sent(table, 100)
    assert spread(sent(table, 30, now=100.0)) <= 2


def test_a_member_that_joins_is_not_flooded() -> None:
    table = table_of(a=1, b=1)
    sent(table, 100)
    table.update("m", [make_report(name) for name in "abc"], 1.0)
    assert spread(sent(table, 30)) <= 2
