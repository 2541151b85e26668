"""The ring of the newest requests: what it keeps, what it finds, how little it holds."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from support.records import a_record

from serve_app.errors import BadRequest
from serve_app.recent import Found, Query, Recent, merged, parse_query
from serve_app.recent.query import ended_ns
from serve_app.recent.ring import MOST_STEPS, SLICE
from serve_app.request.record import MOST_CHARS, RequestRecord, StepTime

CHAT = "/v1/chat/completions"
SECOND_NS = 10**9


def a_request(number: int = 0, **changed: Any) -> RequestRecord:
    own = {
        "request_id": f"r{number}",
        "start_unix_ns": number * SECOND_NS,
        "route": CHAT,
        "tenant": "a",
    }
    return a_record(**own | changed)


def ring(*records: RequestRecord, size: int = 10) -> Recent:
    recent = Recent(size, [CHAT])
    for record in records:
        recent.take(record)
    return recent


def find(recent: Recent, query: Query) -> Found:
    """What the last slice of the search gives."""
    *before, page = recent.search(query)
    assert all(each is None for each in before)
    assert page is not None
    return page


def ids(recent: Recent, query: Query) -> list[str]:
    return [record.request_id for record in find(recent, query).requests]


def test_the_newest_come_first_and_the_oldest_leave() -> None:
    recent = ring(*map(a_request, range(5)), size=3)
    found = find(recent, Query())
    assert [record.request_id for record in found.requests] == ["r4", "r3", "r2"]
    assert (found.kept, found.seen, found.more) == (3, 5, False)


@pytest.mark.parametrize(
    "changed", [{"route": "/admin/latency"}, {"method": "GET"}, {"route": "unmatched"}, {"tenant": None}]
)
def test_what_is_no_request_to_a_model_does_not_push_one_out(changed: dict[str, Any]) -> None:
    recent = ring(a_request(1), *(a_request(n, **changed) for n in range(20)), size=3)
    assert ids(recent, Query()) == ["r1"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Query(model="other"), ["r1"]),
        (Query(tenant="b"), ["r2"]),
        (Query(session="s"), ["r3"]),
        (Query(outcome="exact"), ["r4"]),
        (Query(outcome="error"), ["r6", "r5"]),
        (Query(slower_ms=1000), ["r7"]),
        (Query(id="r0"), ["r0"]),
        (Query(outcome="miss", before=3 * SECOND_NS), ["r2", "r1", "r0"]),
    ],
)
def test_requests_are_found_by_what_is_asked(query: Query, expected: list[str]) -> None:
    recent = ring(
        a_request(0),
        a_request(1, model="other"),
        a_request(2, tenant="b"),
        a_request(3, session="s"),
        a_request(4, cache="exact"),
        a_request(5, cache="exact", error="stream_cut"),
        a_request(6, status=429),
        a_request(7, total_ms=5000.0),
    )
    assert ids(recent, query) == expected


def test_a_search_takes_turns_with_the_streams_and_one_for_an_id_takes_one() -> None:
    recent = ring(*(a_request(number) for number in range(2 * SLICE + 1)), size=3 * SLICE)
    assert list(recent.search(Query(tenant="nobody")))[:-1] == [None] * 3
    *turns, page = recent.search(Query(id="r7"))
    assert turns == [None]
    assert page is not None
    assert [record.request_id for record in page.requests] == ["r7"]


def test_what_arrives_during_a_search_does_not_disturb_it() -> None:
    recent = ring(*(a_request(number) for number in range(2 * SLICE)), size=2 * SLICE)
    search = recent.search(Query(model="m", slower_ms=200))
    assert next(search) is None
    recent.take(a_request(9999, total_ms=5000.0))
    *_, page = search
    assert page is not None
    assert page.requests == ()


def test_an_id_that_a_client_repeats_is_found_as_often_as_it_is_kept() -> None:
    recent = ring(a_request(1), *(a_request(2) for _ in range(5)), a_request(3), size=4)
    assert ids(recent, Query(id="r2")) == ["r2"] * 3
    assert ids(recent, Query(id="r1")) == []


def test_pages_give_every_request_once() -> None:
    recent = ring(*map(a_request, range(10)))
    seen: list[str] = []
    query = Query(limit=4)
    while True:
        found = find(recent, query)
        seen += [record.request_id for record in found.requests]
        if not found.more:
            break
        query = Query(limit=4, before=ended_ns(found.requests[-1]))
    assert seen == [f"r{number}" for number in reversed(range(10))]


def test_what_several_gateways_found_is_one_page() -> None:
    even, odd = ring(*map(a_request, (0, 2, 4))), ring(*map(a_request, (1, 3, 5)))
    found = merged([find(even, Query(limit=3)), find(odd, Query(limit=3))], 3)
    assert [record.request_id for record in found.requests] == ["r5", "r4", "r3"]
    assert (found.kept, found.seen, found.more) == (6, 6, True)


def test_a_million_requests_leave_no_more_than_the_newest() -> None:
    recent, record = Recent(100, [CHAT]), a_request()
    for _ in range(1_000_000):
        recent.take(record)
    found = find(recent, Query())
    assert (found.kept, found.seen, len(found.requests)) == (100, 1_000_000, 100)


def test_memory_does_not_grow_with_the_requests() -> None:
    recent, record = Recent(100, [CHAT]), a_request()
    ring_is_full = [recent.take(record) for _ in range(100)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20 * len(ring_is_full)):
            recent.take(a_request(model="m" * 10_000))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100 * 4_000


def test_names_and_steps_of_a_kept_request_are_bounded() -> None:
    recent = ring(a_request(model="m" * 10_000, steps=tuple(StepTime("s", 0.0, 1.0) for _ in range(1000))))
    kept = find(recent, Query()).requests[0]
    assert kept.model == "m" * MOST_CHARS
    assert len(kept.steps) == MOST_STEPS


def test_a_query_is_read() -> None:
    given = {"model": "m", "outcome": "", "slower_ms": "12.5", "before": "7", "limit": "9"}
    assert parse_query(given) == Query(model="m", slower_ms=12.5, before=7, limit=9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("what", "x"),
        ("slower_ms", "nan"),
        ("slower_ms", "-1"),
        ("slower_ms", "fast"),
        ("before", "-1"),
        ("before", "9" * 25),
        ("limit", "0"),
        ("limit", "501"),
        ("limit", "٣"),
    ],
)
def test_a_wrong_query_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_query({name: value})
    assert caught.value.details.param == name
