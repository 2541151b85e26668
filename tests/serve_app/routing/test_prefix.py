"""What a member holds is worth its prefill time: no more than a queue as long, and no pile of answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from samples import chat_request, make_member, make_report

from serve_app.fleet import FleetTable, Member
from serve_app.routing import POLICIES, Router, RoutingRequest
from serve_app.routing.least_wait import least_wait
from serve_app.routing.prefix import FREE_LOAD, LOAD_BOUND, prefix

PROMPT = 4096.0


def order(*members: Member, **cached: float) -> list[str]:
    return [member.name for member in prefix(RoutingRequest(PROMPT, cached_tokens=cached), members)]


def idle(*names: str) -> list[Member]:
    return [make_member(name) for name in names]


def test_the_longest_shared_prefix_comes_first() -> None:
    assert order(*idle("a", "b", "c"), b=1024.0, c=2048.0) == ["c", "b", "a"]


def test_where_nobody_holds_anything_it_is_the_least_wait() -> None:
    members = [make_member(name, in_flight=load) for name, load in zip("abc", (4, 1, 2), strict=True)]
    request = RoutingRequest(PROMPT)
    assert prefix(request, members) == least_wait(request, members)


@pytest.mark.parametrize(("queue", "first"), [(1000.0, "holder"), (3000.0, "holder"), (5000.0, "other")])
def test_a_queue_outweighs_a_prefix_that_is_shorter(queue: float, first: str) -> None:
    holder = make_member("holder", in_flight=1, unanswered=1, pending_tokens=queue)
    assert order(holder, make_member("other"), holder=PROMPT)[0] == first


def test_a_full_member_loses_its_prompts_to_one_with_room() -> None:
    full = make_member("holder", in_flight=4, capacity=4)
    assert order(full, make_member("other", in_flight=3, capacity=4), holder=PROMPT)[0] == "other"


def test_a_member_far_beyond_the_mean_load_comes_last() -> None:
    others = [make_member(name, in_flight=4, capacity=1000) for name in "abc"]
    bound = int(LOAD_BOUND * 12 / 2)  # its own load counts: x = 2 (12 + x) / 4
    within = make_member("holder", in_flight=bound, capacity=1000)
    assert order(within, *others, holder=PROMPT)[0] == "holder"
    beyond = make_member("holder", in_flight=bound + 1, capacity=1000)
    assert order(beyond, *others, holder=PROMPT)[-1] == "holder"


def test_a_heavier_member_may_have_more() -> None:
    others = [make_member(name, in_flight=4, capacity=1000) for name in "abc"]
    heavy = make_member("holder", in_flight=13, capacity=1000, weight=4.0)
    assert order(heavy, *others, holder=PROMPT)[0] == "holder"


def test_a_few_answers_are_never_too_many() -> None:
    holder = make_member("holder", in_flight=int(FREE_LOAD))
    assert order(holder, *idle(*"abcdefgh"), holder=PROMPT)[0] == "holder"


def test_one_hot_prefix_is_not_served_by_one_member() -> None:
    table = FleetTable({"m": None})
    table.update("m", [make_report(name) for name in "abcd"], 0.0)
    sent: Counter[str] = Counter()
    for _ in range(120):
        cached = dict.fromkeys(sent, PROMPT - 1)
        request = RoutingRequest(PROMPT, cached_tokens=cached)
        member = prefix(request, table.candidates("m", 1.0))[0]
        dispatch = table.send(member, request.uncached_tokens(member), 1.0)
        table.first_byte(dispatch, 1.0, streamed=False)
        sent[member.name] += 1
    assert max(sent.values()) <= LOAD_BOUND * 120 / 4 + 1


def choose_the_same(*fleets: Sequence[Member]) -> None:
    """New gateways, each with its own view of the members, send new prefixes to the same ones, and to all."""
    prompts = [chat_request(f"{number} " + "instructions " * 600) for number in range(40)]
    chosen = []
    for members in fleets:
        router = Router(POLICIES["least_wait"])
        described = [router.describe(prompt, None) for prompt in prompts]
        chosen.append([router.order(request, members)[0].name for request in described])
    assert chosen[0] == chosen[1]
    assert min(Counter(chosen[0]).values()) > len(prompts) / 8


def test_gateways_with_the_same_table_send_a_new_prefix_to_the_same_member() -> None:
    """Whatever turns each has given its members before; the members' names are the only thing they share."""
    fleets = idle("a", "b", "c"), idle("a", "b", "c")
    for members, turns in zip(fleets, ((3.0, 1.0, 2.0), (1.0, 3.0, 2.0)), strict=True):
        for member, turn in zip(members, turns, strict=True):
            member.turn = turn
    choose_the_same(*fleets)


def test_gateways_that_have_learned_other_paces_send_a_new_prefix_to_the_same_member() -> None:
    fleets = idle("a", "b", "c"), idle("a", "b", "c")
    for members, paces in zip(fleets, ((1.00, 1.08, 1.03), (1.06, 1.01, 1.09)), strict=True):
        for member, pace in zip(members, paces, strict=True):
            member.pace.prefill_s_per_token *= pace
    choose_the_same(*fleets)


def test_a_new_prefix_does_not_wait_long_for_its_member() -> None:
    router = Router(POLICIES["least_wait"])
    request = router.describe(chat_request("instructions " * 600), None)
    members = idle("a", "b")
    home = router.order(request, members)[0]
    home.in_flight, home.unanswered, home.pending_tokens = 1, 1, 10.0
    assert router.order(request, members)[0] is home
    home.pending_tokens = 0.2 * request.prompt_tokens
    assert router.order(request, members)[0] is not home
