"""Scorers of words, numbers and patterns."""

from __future__ import annotations

import contextlib
import time

import pytest
from support.judging import judged

from serve_app.evaluation import ScoreError


@pytest.mark.parametrize(
    ("text", "value", "options", "passes"),
    [
        (" Paris\n", "Paris", {}, True),
        ("paris", "Paris", {}, False),
        ("paris", "Paris", {"ignore_case": True}, True),
        ("STRASSE", "straße", {"ignore_case": True}, True),
        ("cafe\u0301", "caf\u00e9", {}, True),
        ("4", 4, {}, True),
        ("true", True, {}, True),
        ("Lyon", ["Paris", "Lyon"], {}, True),
        ("", "Paris", {}, False),
    ],
)
def test_exact(text: str, value: object, options: dict[str, bool], passes: bool) -> None:
    assert judged("exact", text, expected=value, **options).passed is passes
    assert judged("exact", text, value=value, **options).value == float(passes)


def test_contains_gives_the_share_of_what_is_there() -> None:
    assert judged("contains", "red and blue", value=["red", "blue"]).passed
    some = judged("contains", "red and blue", value=["red", "green"])
    assert (some.passed, some.value) == (False, 0.5)
    assert "'green'" in some.reason
    assert judged("contains", "red", value=["red", "green"], any=True).value == 1
    assert judged("contains", "blue", value=["red", "green"], any=True).value == 0


def test_whole_words_only_where_asked() -> None:
    assert judged("contains", "15 apples", value="5").passed
    assert not judged("contains", "15 apples", value="5", words=True).passed
    assert judged("contains", "It is 5.", value="5", words=True).passed
    assert judged("not-contains", "15 apples", value="5", words=True).passed
    assert not judged("not-contains", "15 apples", value="5").passed


def test_what_must_not_be_there_is_never_what_is_expected() -> None:
    with pytest.raises(ValueError, match="expected `value`"):
        judged("not-contains", "a", expected="a")


@pytest.mark.parametrize("scorer", ["exact", "contains", "numeric", "json-equal", "tool-calls", "similar"])
def test_a_scorer_without_anything_to_compare_with_says_so(scorer: str) -> None:
    with pytest.raises(ValueError, match="expected `value`, or `expected` of the case"):
        judged(scorer, "a")


@pytest.mark.parametrize(
    ("text", "options", "passes"),
    [
        ("2024-05-01", {"pattern": r"\d{4}-\d\d-\d\d"}, True),
        ("on 2024-05-01.", {"pattern": r"\d{4}-\d\d-\d\d", "full": True}, False),
        (" 2024-05-01 ", {"pattern": r"\d{4}-\d\d-\d\d", "full": True}, True),
        ("YES", {"pattern": "yes"}, False),
        ("YES", {"pattern": "yes", "ignore_case": True}, True),
        ("yes", {"pattern": "yes", "absent": True}, False),
        ("no", {"pattern": "yes", "absent": True}, True),
    ],
)
def test_regex(text: str, options: dict[str, object], passes: bool) -> None:
    assert judged("regex", text, **options).passed is passes


@pytest.mark.parametrize("pattern", [r"(a|aa)+$", r"(a|a)*b", r"(x+x+)+y", r"(.*)*\1y"])
def test_a_pattern_that_backtracks_without_end_is_stopped(pattern: str) -> None:
    """The bound of the test is wide, because machines are slow; without a bound this lasts for years. The
    engine may also see that some cannot match."""
    began = time.monotonic()
    passed = False
    with contextlib.suppress(ScoreError):
        passed = judged("regex", "a" * 5000 + "x" * 5000 + "!", pattern=pattern, timeout_s=0.2).passed
    assert passed is False
    assert time.monotonic() - began < 60


def test_at_least_one_pattern_needs_the_bound() -> None:
    with pytest.raises(ScoreError, match="took longer"):
        judged("regex", "a" * 200 + "!", pattern=r"^(a|a|aa)+$", timeout_s=0.1)


@pytest.mark.parametrize("pattern", ["(", "[", r"\p{Nothing}", "(?P<a>.)(?P<a"])
def test_a_wrong_pattern_is_refused_before_anything_runs(pattern: str) -> None:
    with pytest.raises(ValueError, match="no regular expression"):
        judged("regex", "a", pattern=pattern)


@pytest.mark.parametrize(
    ("text", "wanted", "options", "passes"),
    [
        ("2 + 3 = 5", 5, {}, True),
        ("It is **1,234.50** EUR", 1234.5, {}, True),
        ("1,23", 23, {}, True),
        ("-7", -7, {}, True),
        ("10-7", 7, {}, True),
        ("−7", -7, {}, True),
        ("3.14.", 3.14, {}, True),
        (".5", 0.5, {}, True),
        ("1.5e3", 1500, {}, True),
        ("3.1", 3.14159, {"tolerance": 0.05}, True),
        ("3.1", 3.14159, {"tolerance": 0.01}, False),
        ("98", 100, {"relative": 0.02}, True),
        ("97", 100, {"relative": 0.02}, False),
        ("5 of 10", 5, {"which": "first"}, True),
        ("5 of 10", 5, {}, False),
        ("5 of 10", 10, {"which": "only"}, False),
        ("0.1", "0.1", {}, True),
        ("version1", 1, {}, False),
        ("nan", 1, {}, False),
        ("infinity", 1, {}, False),
        ("1e9999", 1, {}, False),
        ("9" * 100_000, 9, {}, False),
        ("1,234," * 50_000, 1234, {}, True),
        ("", 0, {}, False),
        ("none", 0, {}, False),
    ],
)
def test_numeric(text: str, wanted: object, options: dict[str, object], passes: bool) -> None:
    assert judged("numeric", text, value=wanted, **options).passed is passes


@pytest.mark.parametrize("wanted", ["no number", "1 and 2", float("nan"), float("inf"), True, [1], 10**400])
def test_numeric_compares_with_finite_numbers_only(wanted: object) -> None:
    with pytest.raises(ValueError, match="number to compare with"):
        judged("numeric", "1", value=wanted)
    with pytest.raises(ScoreError, match="number to compare with"):
        judged("numeric", "1", expected=wanted)
