"""Headers say what a request asks of the cache; nonsense is refused by the header's name."""

from __future__ import annotations

import pytest

from serve_app.errors import BadRequest
from serve_app.request.cache_controls import MAX_TAGS, CacheControls, parse_controls

NO_NUMBERS = [
    "",
    " ",
    "soon",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "Infinity",
    "-1",
    "-1e-9",
    "1e400",
    "0x1",
    "1,5",
    "1 2",
    "²",
]


def refused(name: str, value: str) -> str:
    with pytest.raises(BadRequest) as caught:
        parse_controls({name: value})
    assert (caught.value.param, caught.value.code) == (name, "invalid_header")
    assert caught.value.message.startswith(f"Header `{name}`")
    return caught.value.message


def test_without_headers_the_settings_decide() -> None:
    assert parse_controls({}) == CacheControls()
    assert parse_controls({"x-other": "1", "pragma": "no-cache"}) == CacheControls()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", CacheControls()),
        (",,", CacheControls()),
        ("no-cache", CacheControls(read=False)),
        ("NO-CACHE", CacheControls(read=False)),
        ("no-store", CacheControls(read=False, write=False)),
        ("no-cache, no-store", CacheControls(read=False, write=False)),
        ("max-age=0", CacheControls(max_age_s=0.0)),
        ("max-age=60", CacheControls(max_age_s=60.0)),
        ('Max-Age = "60"', CacheControls(max_age_s=60.0)),
        ("max-age=0.5", CacheControls(max_age_s=0.5)),
        ("no-transform , max-age=5 ,no-cache", CacheControls(read=False, max_age_s=5.0)),
        ("only-if-cached, min-fresh=3, x=y=z", CacheControls()),
        ("no-caches, xno-store, max-ages=x", CacheControls()),
    ],
)
def test_cache_control_is_read_as_http_has_it(value: str, expected: CacheControls) -> None:
    assert parse_controls({"cache-control": value}) == expected


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_max_age_that_makes_no_sense_is_refused(value: str) -> None:
    if "," not in value:  # a comma begins the next directive
        refused("cache-control", f"max-age={value}")


def test_a_max_age_without_a_number_is_refused() -> None:
    refused("cache-control", "max-age")


def test_a_refusal_holds_for_a_request_that_would_not_read_the_cache_either() -> None:
    refused("cache-control", "no-store, max-age=soon")


@pytest.mark.parametrize(("value", "expected"), [("0", 0.0), ("1", 1.0), (" 0.85 ", 0.85), ("9e-1", 0.9)])
def test_a_threshold_is_a_number_from_0_to_1(value: str, expected: float) -> None:
    assert parse_controls({"x-cache-threshold": value}) == CacheControls(threshold=expected)


@pytest.mark.parametrize("value", [*NO_NUMBERS, "1.0001", "2", "1e9", "90%"])
def test_a_threshold_that_makes_no_sense_is_refused(value: str) -> None:
    assert "expected a number from 0 to 1" in refused("x-cache-threshold", value)


@pytest.mark.parametrize(("value", "expected"), [("1", 1.0), ("3600", 3600.0), ("0.25", 0.25), (" 5 ", 5.0)])
def test_a_time_to_live_is_in_seconds(value: str, expected: float) -> None:
    assert parse_controls({"x-cache-ttl": value}) == CacheControls(ttl_s=expected)


@pytest.mark.parametrize("value", [*NO_NUMBERS, "0", "0.0", "-0", "1h", "1e300"])
def test_a_time_to_live_that_makes_no_sense_is_refused(value: str) -> None:
    refused("x-cache-ttl", value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ()),
        (" , ,", ()),
        ("a", ("a",)),
        ("a,b", ("a", "b")),
        (" docs:v1.2 , team_a-b ,", ("docs:v1.2", "team_a-b")),
        ("x" * 64, ("x" * 64,)),
        (
            ",".join(f"t{number}" for number in range(MAX_TAGS)),
            tuple(f"t{number}" for number in range(MAX_TAGS)),
        ),
    ],
)
def test_tags_are_separated_by_commas(value: str, expected: tuple[str, ...]) -> None:
    assert parse_controls({"x-cache-tags": value}) == CacheControls(tags=expected)


@pytest.mark.parametrize(
    "value",
    [
        "a b",
        "a/b",
        "ä",
        "👍",
        "a;b",
        '"a"',
        "a\x00",
        "a\nb",
        "x" * 65,
        "ok,not ok",
        ",".join("a" * (MAX_TAGS + 1)),
    ],
)
def test_tags_that_make_no_sense_are_refused(value: str) -> None:
    assert f"at most {MAX_TAGS} tags" in refused("x-cache-tags", value)


@pytest.mark.parametrize("name", ["x-cache-threshold", "x-cache-ttl", "x-cache-tags"])
def test_a_huge_value_is_refused_and_shown_in_part(name: str) -> None:
    assert len(refused(name, "9" * 50_000)) < 300


def test_a_huge_max_age_is_refused_and_shown_in_part() -> None:
    assert len(refused("cache-control", "max-age=" + "9" * 50_000)) < 300


def test_headers_add_up() -> None:
    headers = {
        "cache-control": "max-age=10",
        "x-cache-threshold": "0.8",
        "x-cache-ttl": "20",
        "x-cache-tags": "a,b",
    }
    assert parse_controls(headers) == CacheControls(
        max_age_s=10.0, threshold=0.8, ttl_s=20.0, tags=("a", "b")
    )
