"""Usage as values: queries, CSV that no spreadsheet runs, prices."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

import pytest

from serve_app.errors import BadRequest
from serve_app.settings import parse_args
from serve_app.usage import Counts, UsagePage, UsageQuery, parse_usage_query
from serve_app.usage.prices import Prices, gpu_seconds
from serve_app.usage.query import DEFAULT_GROUPS, MOST_GROUPS, format_of
from serve_app.usage.rows import COUNTS, WHOLE, UsageGroup
from serve_app.usage.shown import as_csv, safe_cell, shown


def test_whole_counts_are_those_that_are_counted_in_ones() -> None:
    assert {name for name in COUNTS if isinstance(getattr(Counts(), name), int)} == WHOLE


def test_a_query_names_days_filters_and_groups() -> None:
    given = {"from": "2026-01-01", "to": "2026-01-31", "tenant": "a", "by": "month, key", "limit": "7"}
    assert parse_usage_query(given) == UsageQuery(
        since="2026-01-01", until="2026-01-31", tenant="a", by=("month", "key"), limit=7
    )


def test_without_a_query_it_is_by_day_tenant_and_model() -> None:
    assert parse_usage_query({}).by == ("day", "tenant", "model")
    assert parse_usage_query({}).limit == DEFAULT_GROUPS
    assert parse_usage_query({"format": "csv"}).limit == MOST_GROUPS
    assert parse_usage_query({"by": ""}).by == ()


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"days": "3"}, "days"),
        ({"from": "yesterday"}, "from"),
        ({"from": "2026-01-01T00:00"}, "from"),
        ({"from": "2026-02-30"}, "from"),
        ({"from": "2026-02-02", "to": "2026-02-01"}, "to"),
        ({"by": "prompt"}, "by"),
        ({"limit": "0"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "9" * 50}, "limit"),
        ({"limit": "٣"}, "limit"),
        ({"user": "x" * 500}, "user"),
    ],
)
def test_a_wrong_query_is_refused_and_named(given: Mapping[str, str], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_usage_query(given)
    assert refused.value.details.param == param


def test_only_known_formats_are_written() -> None:
    assert format_of({}) == "json"
    assert format_of({"format": "csv"}) == "csv"
    with pytest.raises(BadRequest):
        format_of({"format": "xml"})


def page(*names: str) -> UsagePage:
    return UsagePage([UsageGroup(names, Counts(requests=2, cost=0.1234567))], Counts(requests=2))


def test_usage_is_shown_with_its_names() -> None:
    value = shown(page("2026-01-01", "team"), ("day", "tenant"))
    (row,) = value["usage"]
    assert (row["day"], row["tenant"]) == ("2026-01-01", "team")
    assert row["requests"] == 2
    assert row["cost"] == 0.123457
    assert value["total"]["requests"] == 2
    assert value["more"] is False


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "=cmd|' /C calc'!A0", "\uff1d1"]
)
def test_no_cell_of_a_csv_is_a_formula(name: str) -> None:
    (_, cells) = csv.reader(io.StringIO(as_csv(page(name), ("user",)), newline=""))
    assert cells[0] == f"'{name}"


@pytest.mark.parametrize("name", ["team", "a,b", 'a"b', "a\nb", "ünïcode", "a=b", ""])
def test_other_cells_come_back_as_they_were(name: str) -> None:
    assert safe_cell(name) == name
    (head, cells) = csv.reader(io.StringIO(as_csv(page(name), ("user",)), newline=""))
    assert head == ["user", *COUNTS]
    assert cells[0] == name


def test_prices_are_those_of_the_model_under_all_its_names() -> None:
    settings = parse_args(
        {
            "models": [
                {
                    "id": "m",
                    "aliases": ["alias"],
                    "source": "/models/m",
                    "engine": {"tensor_parallel_size": 2},
                    "cost_per_million_tokens": {"input": 1.0, "output": 4.0},
                    "cost_per_device_hour": 7.2,
                },
                {"id": "v", "upstreams": [{"name": "u", "url": "https://vendor.example/v1"}]},
            ]
        },
        source="test",
    )
    prices = Prices.of(settings)
    price = prices.price("alias")
    assert price.of_tokens(1_000_000, 500_000) == 3.0
    assert price.devices == 2
    assert price.of_gpu(10) == pytest.approx(0.02)
    assert prices.price("v").of_tokens(1000, 1000) == 0.0
    assert prices.price("v").devices == 0
    assert prices.price(None).of_tokens(1000, 1000) == 0.0


def test_requests_that_share_a_replica_share_its_devices() -> None:
    assert gpu_seconds(3.0, 2, 4) == 1.5
    assert gpu_seconds(3.0, 2, 1) == 6.0
    assert gpu_seconds(3.0, 2, 0) == 6.0
