"""Tiers first, the policy within them; and what was sent where is remembered as long as the member lives."""

from __future__ import annotations

import pytest
from samples import chat_request, make_member, prompt_blocks

from serve_app.fleet import Member
from serve_app.openai.requests import ParsedRequest
from serve_app.routing import POLICIES, Router, RoutingRequest
from serve_app.routing.prompt import TOKENS_PER_BLOCK, estimated_tokens

PROMPT = chat_request("once upon a time " * 200)
REQUEST = RoutingRequest(10.0)


def order(router: Router, *members: Member, request: RoutingRequest = REQUEST) -> list[str]:
    return [member.name for member in router.order(request, members)]


@pytest.fixture
def router() -> Router:
    return Router(POLICIES["prefix"])


@pytest.mark.parametrize("name", POLICIES)
def test_lower_priorities_come_first_whatever_the_policy_says(name: str) -> None:
    own = [make_member(letter, in_flight=9, turn=9.0) for letter in "ab"]
    vendor = [make_member(letter, priority=1) for letter in "cd"]
    last = make_member("e", priority=7)
    ordered = order(Router(POLICIES[name]), last, *vendor, *own)
    assert [set(ordered[:2]), set(ordered[2:4]), ordered[4]] == [{"a", "b"}, {"c", "d"}, "e"]


@pytest.mark.parametrize("name", POLICIES)
def test_members_without_room_come_behind_all_that_have_some(name: str) -> None:
    full = make_member("full", in_flight=2, limit=2)
    full_vendor = make_member("full-vendor", in_flight=2, limit=2, priority=1)
    vendor = make_member("vendor", priority=1)
    assert order(Router(POLICIES[name]), full_vendor, full, vendor) == ["vendor", "full", "full-vendor"]


def test_the_policy_decides_within_a_tier() -> None:
    members = [make_member(name, in_flight=load) for name, load in zip("abc", (2, 0, 1), strict=True)]
    assert order(Router(POLICIES["least_wait"]), *members) == ["b", "c", "a"]


def test_a_session_without_room_goes_to_the_next_in_its_own_order() -> None:
    router, request = Router(POLICIES["session"]), RoutingRequest(10.0, session="s")
    members = [make_member(name, limit=4) for name in "abcdef"]
    home, second, *rest = order(router, *members, request=request)
    for member in members:
        member.in_flight = 4 if member.name == home else 0
    assert order(router, *members, request=request) == [second, *rest, home]


def test_a_policy_that_asks_for_no_blocks_pays_for_none() -> None:
    router = Router(POLICIES["least_wait"], keeps_sessions=False)
    described = router.describe(PROMPT, "s")
    assert described == RoutingRequest(estimated_tokens(PROMPT), (), "s", {})
    router.sent(described, make_member("a"))
    assert router.describe(PROMPT, "s") == described


def test_what_was_sent_to_a_member_is_cached_there(router: Router) -> None:
    a, b = make_member("a"), make_member("b")
    first = router.describe(PROMPT, None)
    assert (first.blocks, first.cached_tokens) == (prompt_blocks(PROMPT), {})
    router.sent(first, b)
    again = router.describe(PROMPT, None)
    assert again.uncached_tokens(a) == again.prompt_tokens
    assert 0 <= again.uncached_tokens(b) < 200
    assert router.current(first) == again  # described before, waited, and sent now
    assert order(router, a, b, request=again) == ["b", "a"]


def test_a_prompt_that_is_sent_again_has_little_left_to_compute_however_long_it_is(router: Router) -> None:
    long = chat_request("once upon a time " * 30_000)
    a = make_member("a", kv_cache_tokens=1_000_000)
    router.sent(router.describe(long, None), a)
    again = router.describe(long, None)
    assert again.prompt_tokens > 100_000
    assert again.uncached_tokens(a) <= TOKENS_PER_BLOCK


def test_what_another_gateway_has_sent_counts_where_it_is_more() -> None:
    one, other = (Router(POLICIES["prefix"], tell=lambda *_: None) for _ in range(2))
    a, b = make_member("a"), make_member("b")
    described = one.describe(PROMPT, None)
    one.heard(described.prefixes, a)
    assert one.describe(PROMPT, None).cached_tokens.keys() == {"a"}
    assert other.describe(PROMPT, None).prefixes == described.prefixes, "all gateways name it alike"
    one.sent(described, b)
    one.heard(described.prefixes[:1], b)
    cached = one.describe(PROMPT, None).cached_tokens
    assert cached["a"] == cached["b"]
    one.keep(["b"])
    assert one.describe(PROMPT, None).cached_tokens.keys() == {"b"}


def test_nothing_of_a_tenants_prompt_is_named_as_anothers() -> None:
    """Neither what gateways tell one another, nor its home: else times would tell who has asked what."""
    router, members = (
        Router(POLICIES["least_wait"], tell=lambda *_: None),
        [make_member(m) for m in "abcdefgh"],
    )
    one, other = (router.describe(LONG, None, salt) for salt in ("one", "other"))
    assert one.prompt_tokens == other.prompt_tokens
    assert not {*one.prefixes} & {*other.prefixes}
    assert not {*one.blocks} & {*other.blocks}
    assert one.beginning != other.beginning
    homes = {
        router.order(router.describe(LONG, None, f"tenant {number}"), members)[0].name for number in range(40)
    }
    assert len(homes) > 4
    router.sent(one, members[0])
    router.heard(one.prefixes, members[1])
    assert router.describe(LONG, None, "other").cached_tokens == {}


def test_a_member_that_is_gone_is_forgotten(router: Router) -> None:
    for name in "abc":
        router.sent(router.describe(PROMPT, None), make_member(name))
    router.keep(["b", "new"])
    assert set(router.describe(PROMPT, None).cached_tokens) == {"b"}
    router.keep([])
    assert router.describe(PROMPT, None).cached_tokens == {}


def test_a_small_cache_is_believed_to_hold_no_more_than_it_can(router: Router) -> None:
    router.sent(router.describe(PROMPT, None), make_member("a", kv_cache_tokens=300))
    assert router.describe(PROMPT, None).cached_tokens["a"] <= 300


def test_no_candidates_give_no_order(router: Router) -> None:
    assert router.order(REQUEST, []) == []


LONG = chat_request("An agent's instructions. " * 200)
SHORT = chat_request("An agent's instructions. " * 100)


@pytest.mark.parametrize("name", ["least_wait", "prefix"])
def test_a_long_prompt_is_found_again_without_the_name_of_a_session(name: str) -> None:
    router = Router(POLICIES[name])
    a, b = make_member("a"), make_member("b")
    router.sent(router.describe(LONG, None), b)
    assert order(router, a, b, request=router.describe(LONG, None)) == ["b", "a"]
    crowd = [a, make_member("b", in_flight=40), make_member("c")]
    assert order(router, *crowd, request=router.describe(LONG, None))[-1] == "b", "a queue costs more"


def test_short_prompts_without_a_session_are_not_hashed() -> None:
    assert Router(POLICIES["least_wait"]).describe(SHORT, None).blocks == ()
    assert Router(POLICIES["round_robin"]).describe(LONG, None).blocks == ()
    assert Router(POLICIES["least_wait"], keeps_sessions=False).describe(LONG, None).blocks == ()


def test_a_new_session_goes_where_its_prompt_is_cached_and_else_home() -> None:
    router, members = Router(POLICIES["least_wait"]), [make_member(name) for name in "abcdef"]
    new = router.describe(LONG, "new", begins_session=True)
    assert new.session == "new"
    home, *others = router.order(new, members)
    router.sent(router.describe(LONG, None), others[-1])
    again = router.describe(LONG, "new", begins_session=True)
    assert router.order(again, members)[0] is others[-1]
    later = router.describe(LONG, "new")
    assert router.order(later, members)[0] is home, "its turns are there, as far as other gateways know"


def picture(
    data: str, question: str, *, first: bool = True, url: str = "data:image/png;base64,"
) -> ParsedRequest:
    shown = {"type": "image_url", "image_url": {"url": url + data}}
    parts = [shown, {"type": "text", "text": question}]
    return chat_request(parts if first else parts[::-1])


def test_a_picture_keeps_to_one_member_at_every_gateway_whatever_is_asked_of_it() -> None:
    members = [make_member(name) for name in "abcdefgh"]

    def home(request: ParsedRequest, salt: str | None = None) -> str:
        router = Router(POLICIES["least_wait"])  # a gateway that has seen nothing yet
        return order(router, *members, request=router.describe(request, None, salt))[0]

    data = [f"{number:04}" * 5000 for number in range(20)]
    homes = [home(picture(each, "what?")) for each in data]
    assert [home(picture(each, "and how many?", first=False)) for each in data] == homes
    assert [home(picture(each, "what?", url="DATA:image/webp;base64,")) for each in data] == homes
    assert len(set(homes)) > 2
    assert [home(picture(each, "what?"), "another tenant") for each in data] != homes


def test_a_picture_whose_member_is_busy_is_asked_about_elsewhere() -> None:
    router = Router(POLICIES["least_wait"])
    request = router.describe(picture("x" * 5000, "what?"), None)
    members = [make_member(name, limit=64) for name in "abc"]
    home, *others = order(router, *members, request=request)
    busy = [make_member(name, limit=64, in_flight=40 if name == home else 0, turn=9.0) for name in "abc"]
    assert order(router, *busy, request=request)[-1] == home
    assert {*others} == set("abc") - {home}


def test_a_session_goes_before_its_pictures_and_texts_have_no_name() -> None:
    router = Router(POLICIES["least_wait"])
    assert router.describe(picture("x", "what?"), "s").session == "s"
    assert router.describe(chat_request("what?"), None).session is None
    assert Router(POLICIES["round_robin"]).describe(picture("x", "what?"), None).session is None
