"""Days and months of a tenant's zone, and the parts that tell and price."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from serve_app.quotas.book import Book
from serve_app.quotas.cost import Use, left_early, room_for_answer, shares
from serve_app.quotas.lengths import FIRST_GUESS, FLOOR, MOST_PACE, Lengths
from serve_app.quotas.limits import Bound, LimitTable, sender_scopes
from serve_app.quotas.purse import Purse
from serve_app.quotas.rates import Left, left_of, rate_headers
from serve_app.quotas.windows import Calendar, SlidingMinute
from serve_app.usage.prices import Price

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(("day", "hours"), [(24, 24), (25, 25), (29, 24)])
def test_a_day_with_a_clock_change_is_as_long_as_its_clocks_say(day: int, hours: int) -> None:
    noon = datetime(2026, 10, day, 12, tzinfo=BERLIN).timestamp()
    span = Calendar().span(Bound.TOKENS_DAY, "Europe/Berlin", noon)
    assert span.label == f"2026-10-{day}"
    assert span.ends - span.begins == hours * 3600


def test_a_day_ends_at_midnight_of_the_tenants_zone() -> None:
    calendar = Calendar()
    midnight = datetime(2027, 1, 1, tzinfo=BERLIN).timestamp()
    before = calendar.span(Bound.TOKENS_DAY, "Europe/Berlin", midnight - 0.001)
    after = calendar.span(Bound.TOKENS_DAY, "Europe/Berlin", midnight)
    assert (before.label, before.ends, after.label) == ("2026-12-31", midnight, "2027-01-01")
    assert calendar.span(Bound.MONEY_MONTH, "Europe/Berlin", midnight - 1).ends == midnight
    assert calendar.span(Bound.TOKENS_DAY, "UTC", midnight).label == "2026-12-31"


def test_what_was_used_leaves_the_minute_never_early() -> None:
    minute = SlidingMinute()
    minute.add(100.1, 5)
    minute.add(99.9, 3)  # told late
    assert minute.used(159.9) == 8
    assert minute.used(160.1) == 5
    assert minute.used(160.4) == 0


def test_answers_are_reserved_by_what_was_seen_of_their_sender() -> None:
    lengths = Lengths()
    assert lengths.answer(("key", "tenant"), "model") == FIRST_GUESS
    for n in range(100):
        lengths.saw_answer(("key", "tenant"), "model", 100 if n % 20 else 1000)
    learned = lengths.answer(("key", "tenant"), "model")
    assert learned == round(2 ** (27 / 4)), "five of 100 are longer than its size, from 91 to 108 tokens"
    assert lengths.answer(("another", "tenant"), "model") == learned
    assert lengths.answer(("another", "another"), "model") == FIRST_GUESS


def test_no_two_tenants_share_what_was_learned_of_who_signed_in() -> None:
    senders = [sender_scopes(tenant, None, user) for tenant in ("acme", "other") for user in ("ann", None)]
    lengths = Lengths()
    for _ in range(50):
        lengths.saw_answer(senders[0], "model", 6000)
    assert [lengths.answer(each, "model") > 6000 for each in senders] == [True, True, False, False]


def test_a_tenant_s_prompts_do_not_change_what_others_reserve() -> None:
    lengths = Lengths()
    for _ in range(20):
        lengths.saw_prompt("tenant", "model", 1000, 100_000)
    assert lengths.prompt("tenant", "model", 100) == 800
    assert lengths.prompt("another", "model", 100) == 100


def test_short_prompts_do_not_make_long_ones_more_than_they_are() -> None:
    lengths = Lengths()
    for _ in range(50):
        lengths.saw_prompt("tenant", "model", 2, 40)
    assert lengths.prompt("tenant", "model", 2) == 40
    assert lengths.prompt("tenant", "model", 5000) == 5038
    for _ in range(50):
        lengths.saw_prompt("tenant", "model", 2, 4000)
    assert lengths.prompt("tenant", "model", 5000) == 5064


def test_no_prompt_teaches_that_others_need_less_than_estimated() -> None:
    lengths = Lengths()
    for _ in range(200):
        lengths.saw_prompt("tenant", "model", 1000, 1)
        lengths.saw_prompt("tenant", "model", 100, 1)
    assert lengths.prompt("tenant", "model", 1000) == 1000
    assert lengths.prompt("tenant", "model", 0) == 0


def test_what_is_asked_of_the_owner_can_be_sent() -> None:
    book = Book("gateway", LimitTable({}))
    parts = [(book.purse("tenant:t", Bound.TOKENS_DAY, "t"), 10**17)]
    with ExitStack() as waiting:
        for _ in range(1000):
            waiting.enter_context(book.waiting(parts))
        assert msgspec.msgpack.encode(book.call(0.0))


@pytest.mark.parametrize("room", [0, 999, 150_000, 150_600, 450_000, 10**12 + 7])
def test_as_much_of_an_answer_fits_as_its_money(room: int) -> None:
    price = Price(0.15, 0.6)
    tokens = room_for_answer(1000, Bound.MONEY_DAY, price, room)
    assert (
        Use(1000, tokens).of(Bound.MONEY_DAY, price)
        <= room
        < Use(1000, tokens + 2).of(Bound.MONEY_DAY, price)
    )
    assert room_for_answer(1000, Bound.TOKENS, price, room) == room - 1000
    assert (room_for_answer(1000, Bound.MONEY_DAY, Price(0.15, 0.0), room) > 0) == (room >= 150_000)


def test_money_is_counted_exactly() -> None:
    assert Use(1000, 500).of(Bound.MONEY_DAY, Price(0.15, 0.6)) == 450_000
    assert Use(1000, 500).at_rate(0.5).of(Bound.TOKENS, Price()) == 750


def test_headers_tell_when_a_limit_is_whole_again() -> None:
    headers = rate_headers("/v1/chat/completions", Left(60, 0, 61.0), Left(1000, 10, 0.02), 0.0)
    assert headers["x-ratelimit-reset-requests"] == "1m1s"
    assert headers["x-ratelimit-reset-tokens"] == "20ms"
    assert rate_headers("/v1/messages", Left(60, 0, 61.0), None, 0.0) == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "1970-01-01T00:01:01Z",
    }


def told(bound: Bound, **known: Any) -> Purse:
    return Purse("tenant:t", bound, "t", **known)


def test_what_the_owner_has_not_said_is_not_shown() -> None:
    for bound in (Bound.REQUESTS, Bound.TOKENS_DAY):
        assert left_of(told(bound), 10, now=5.0) is None


def test_a_minute_is_whole_a_minute_after_the_last_use() -> None:
    known = {"limit": 10, "left": 4, "free": 3, "told_at": 100.0}
    assert left_of(told(Bound.REQUESTS, **known), 10, now=120.0) == Left(10, 7, 60.0)
    assert left_of(told(Bound.REQUESTS, **known | {"left": 7}), 10, now=120.0) == Left(10, 10, 0.0)
    assert left_of(told(Bound.REQUESTS, **known), 10, now=161.0) == Left(10, 7, 60.0)
    assert left_of(told(Bound.REQUESTS, **known | {"free": 0}), 10, now=161.0) is None


def test_a_day_ends_when_it_was_said_to_end() -> None:
    known = {"limit": 10, "left": 4, "resets_s": 300.0, "told_at": 100.0}
    assert left_of(told(Bound.TOKENS_DAY, **known), 10, now=160.0) == Left(10, 4, 240.0)
    assert left_of(told(Bound.TOKENS_DAY, **known), 10, now=401.0) is None


@pytest.mark.parametrize("used", [0, 5, 12, 30, 1000])
def test_what_was_reserved_in_steps_is_settled_with_all_that_was_used(used: int) -> None:
    parts = shares([10, 10, 20], used)
    assert sum(parts) == used
    assert all(part <= amount for part, amount in zip(parts[:-1], [10, 10], strict=True))
    assert shares([], used) == []


def test_short_answers_do_not_make_reservations_smaller_than_their_floor() -> None:
    lengths = Lengths()
    for _ in range(50):
        lengths.saw_answer(("key", "tenant"), "model", 1)
    assert lengths.reserved(("key", "tenant"), "model", True) == FLOOR
    assert lengths.reserved(("key", "tenant"), "model", False) == FIRST_GUESS


@pytest.mark.parametrize("is_told_before", [False, True])
def test_the_last_minute_of_a_longer_request_counts_by_the_minute(is_told_before: bool) -> None:
    book = Book("gateway", LimitTable({}))
    purse = book.purse("tenant:acme", Bound.TOKENS, "acme")
    purse.free = 1000
    taken = (book.take([(purse, 900)], 100.0) or [])[0]
    if is_told_before:
        book.call(161.0)
    assert purse.busy == (0 if is_told_before else 900)
    book.settle(taken, 50_000, 220.0)
    book.settle(taken, 50_000, 220.0)
    assert sum(purse.unsent.values()) == 25_000
    assert purse.busy == 0


def test_a_whole_answer_that_was_left_counts_by_its_time_and_the_model_s_pace() -> None:
    reserved = Use(1000, 500)
    assert left_early(reserved, 2.0, 100.0, streams=False) == Use(1000, 200)
    assert left_early(reserved, 60.0, 100.0, streams=False) == reserved
    assert left_early(reserved, 0.1, None, streams=False) == reserved
    assert left_early(reserved, 60.0, 100.0, streams=True) == Use(1000, 0)


def test_slow_answers_do_not_hide_how_fast_a_model_is() -> None:
    lengths = Lengths()
    assert lengths.pace("model") is None
    lengths.saw_pace("model", 1, 1.0)
    assert lengths.pace("model") is None
    lengths.saw_pace("model", 100, 1.0)
    lengths.saw_pace("model", 100, 50.0)
    assert lengths.pace("model") == pytest.approx(98.0)
    lengths.saw_pace("model", 10**9, 1.0)
    assert lengths.pace("model") == MOST_PACE
