"""Rules that choose a model: the cheapest that fits, and functions of a user's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from samples import chat_request

from serve_app.errors import SettingsError
from serve_app.model_choice import RULES, Candidate, ChoiceRequest, Price
from serve_app.model_choice.cheapest import MARGIN, cheapest_that_fits
from serve_app.model_choice.registry import load_rule
from serve_app.settings.policies import MODEL_RULES, known_rule

SMALL = Candidate("small", Price(0.1, 0.4), context=1_000)
MIDDLE = Candidate("middle", Price(1.0, 2.0), context=4_000)
LARGE = Candidate("large", Price(2.0, 8.0), context=32_000)
ALL = (LARGE, MIDDLE, SMALL)


def request(prompt: float = 100, answer: int = 100, **headers: str) -> ChoiceRequest:
    return ChoiceRequest(prompt, answer, headers, chat_request())


def changed(candidate: Candidate, **fields: Any) -> Candidate:
    known = {name: getattr(candidate, name) for name in Candidate.__slots__}
    return Candidate(**(known | fields))


@pytest.mark.parametrize(
    ("prompt", "answer", "expected"),
    [
        (0, 1, "small"),
        (100, 100, "small"),
        (900 / MARGIN, 100, "small"),
        (900 / MARGIN + 1, 100, "middle"),
        (100, 990, "middle"),
        (10, 4_000, "large"),
        (20_000, 100, "large"),
    ],
)
def test_the_cheapest_that_holds_prompt_and_answer_is_taken(
    prompt: float, answer: int, expected: str
) -> None:
    assert cheapest_that_fits(request(prompt, answer), ALL) == expected


def test_where_none_is_long_enough_the_longest_has_the_last_word() -> None:
    assert cheapest_that_fits(request(1e6), ALL) == "large"


def test_a_model_that_has_to_start_is_taken_only_if_no_other_is_long_enough() -> None:
    at_zero = {"can_serve": False, "has_room": False, "can_start": True}
    models = (changed(SMALL, **at_zero), MIDDLE, changed(LARGE, **at_zero))
    assert cheapest_that_fits(request(10), models) == "middle"
    assert cheapest_that_fits(request(5_000), models) == "large"
    down = (MIDDLE, changed(LARGE, can_serve=False))
    assert cheapest_that_fits(request(5_000), down) == "middle"  # only its engine says so


def test_a_model_that_does_not_say_how_long_it_is_fits() -> None:
    assert cheapest_that_fits(request(1e6), (LARGE, changed(SMALL, context=None))) == "small"


def test_what_is_cheap_depends_on_the_shares_of_prompt_and_answer() -> None:
    reads = Candidate("reads", Price(0.1, 10.0))
    writes = Candidate("writes", Price(1.0, 1.0))
    assert cheapest_that_fits(request(10_000, 10), (writes, reads)) == "reads"
    assert cheapest_that_fits(request(10, 10_000), (reads, writes)) == "writes"


def test_without_prices_the_first_that_fits_is_taken() -> None:
    first, second = changed(SMALL, price=Price()), changed(LARGE, price=Price())
    assert cheapest_that_fits(request(), (first, second)) == "small"
    assert cheapest_that_fits(request(), (second, first)) == "large"
    assert cheapest_that_fits(request(2_000), (first, second)) == "large"


def test_a_model_that_nobody_serves_now_is_passed_over() -> None:
    away = changed(SMALL, can_serve=False)
    assert cheapest_that_fits(request(), (away, LARGE)) == "large"
    assert cheapest_that_fits(request(), (away, changed(LARGE, can_serve=False))) == "small"


def test_settings_may_name_each_registered_rule_and_no_other() -> None:
    assert set(MODEL_RULES) == set(RULES)


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_registered_rule_names_a_candidate(name: str) -> None:
    rule = load_rule(known_rule(name))
    for prompt in (0, 1e3, 1e6):
        for count in (1, 2, 3):
            candidates = ALL[:count]
            assert rule(request(prompt), candidates) in [candidate.name for candidate in candidates]


def test_a_function_of_a_users_own_is_a_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules_of_mine.py").write_text(
        "def by_language(request, candidates):\n"
        "    wanted = 'large' if request.headers.get('accept-language') == 'de' else 'small'\n"
        "    return next(each.name for each in candidates if each.name == wanted)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    rule = load_rule(known_rule("rules_of_mine:by_language"))
    assert rule(request(), ALL) == "small"
    assert rule(request(**{"accept-language": "de"}), ALL) == "large"
    sys.modules.pop("rules_of_mine")


@pytest.mark.parametrize(
    "name", ["", "cheapest", "Cheapest-that-fits", "module.function", "a:b:c", ":f", "m:"]
)
def test_what_is_neither_a_rule_nor_a_function_is_refused_with_what_would_be(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected one of: cheapest-that-fits, or a function") as caught:
        known_rule(name)
    assert "`module:function`" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:no_such_function", "AttributeError: module 'json' has no attribute"),
        ("sys:path", "it is not a function but list"),
    ],
)
def test_a_function_that_is_not_there_is_named(name: str, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_rule(name)
    assert str(caught.value).startswith(f"auto_models: rule = {name!r}: {reason}")


def test_a_users_module_that_fails_is_named_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules_that_fail.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match="RuntimeError: no licence"):
        load_rule("rules_that_fail:f")
