"""What one tenant must not learn of another, and what of it reaches the engines."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from local_cache import local_cache
from scripted_member import Member, answers, listening
from support.gateway import (
    ADMIN,
    COMPLETIONS,
    MODEL,
    Answered,
    Faults,
    Running,
    SimSettings,
    as_sent,
    chat,
    gateway,
    meanwhile,
)
from support.graph import CHAT, eventually

from deployments.embedder.deployment import Embedder
from serve_app.model_store import ModelStore
from serve_app.settings import EmbedderSettings
from serve_app.settings.paths import ENGINE_PATHS

QUICK = SimSettings(itl_ms=0, tokens=4, keep_bodies=16)
DOCUMENT = "the board decided to sell the northern mill in spring, and nobody was to hear of it " * 20
RELAYED = ("/v1/embeddings", "/v1/score")
KEYED: dict[str, Any] = {"tenants": ["a", "b"]}


def salts(running: Running, engine: int = 0) -> list[str | None]:
    """What an engine was sent, in order."""
    return [json.loads(seen["body"]).get("cache_salt") for seen in running.engines[engine].stats().seen]


async def ask(running: Running, tenant: str, path: str = CHAT, **fields: Any) -> Answered:
    body = chat("hi", **fields) if path == CHAT else {"model": MODEL, "prompt": "hi", **fields}
    answer = await running.send(body, path, headers=running.headers(tenant))
    assert answer.status == 200, answer.body
    return answer


# ---- the requests that are answered at once ----


async def test_a_tenant_whose_requests_join_one_another_leaves_others_their_share(tmp_path: Path) -> None:
    """Joined requests take no slots, so that nothing else bounds them."""
    endless = {"ignore_eos": True, "max_tokens": 4000, "temperature": 0}
    slow = SimSettings(itl_ms=20, tokens=4000)
    limits = {"limits": {"max_concurrent_requests": 8}}
    async with local_cache(tmp_path) as cache, AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            gateway(slow, handles=cache.handles, **cache.args, **KEYED, **limits)
        )
        a, b = running.headers("a"), running.headers("b")
        for number in range(4):
            stream = await stack.enter_async_context(running.stream("one answer", a, **endless))
            assert stream.response.status == 200
            assert number == 0 or stream.headers["x-cache"] == "joined"
        refused = await running.post("one answer", a, stream=True, **endless)
        assert (refused.status, refused.error["code"]) == (429, "over_capacity")
        assert "limits.max_concurrent_requests_per_tenant" in refused.error["message"]
        for who in (a, b):  # it needs no engine
            async with running.http.get("/v1/models", headers=who) as response:
                assert response.status == 200
        assert (await running.send({"model": "none"}, CHAT, a)).status == 429
        assert (await running.post("another", b, max_tokens=2)).status == 200
        assert running.requests() == [2]


async def test_a_tenants_share_is_free_again_when_its_requests_end() -> None:
    limits = {"limits": {"max_concurrent_requests": 8, "max_concurrent_requests_per_tenant": 1}}
    async with gateway(QUICK, **KEYED, **limits) as running:
        for _ in range(3):
            await ask(running, "a")
            assert (await running.send({"model": "none"}, CHAT, running.headers("a"))).status == 400


# ---- the prefix cache of engines ----


@pytest.mark.parametrize(
    ("upstream", "args", "is_offered"),
    [
        ({}, KEYED, False),
        ({"paths": list(ENGINE_PATHS)}, KEYED, True),
        ({}, KEYED | {"gateway": {"share_prefixes": True}}, True),
        ({}, {}, True),
    ],
)
async def test_a_path_that_vllm_cannot_salt_is_offered_only_where_prefixes_may_be_shared(
    upstream: dict[str, Any], args: dict[str, Any], is_offered: bool
) -> None:
    member = Member(answers(200, {"id": "1", "embeddings": {"float": [[1.0]]}, "texts": ["x"]}))
    others = [member.upstream(kind="vllm", health_period_s=0.05, **upstream)]
    async with listening(member):
        others[0]["url"] = f"{member.url}/v1"
        async with gateway(others=others, **args) as running:
            headers = running.headers("a") if running.keys else None
            answer = await running.send({"model": MODEL, "texts": ["x"]}, "/v2/embed", headers)
            if is_offered:
                assert answer.status == 200
            else:
                assert (answer.status, answer.error["code"]) == (404, "path_not_offered")
                assert "share_prefixes" in answer.error["message"]
    assert bool(member.seen) is is_offered


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_each_tenant_has_a_salt_of_its_own_whatever_it_sends(path: str, stream: bool) -> None:
    async with gateway(QUICK, **KEYED) as running:
        for own in ({}, {"cache_salt": "x"}, {"cache_salt": None}):
            for tenant in ("a", "b"):
                await ask(running, tenant, path, stream=stream, **own)
        plain_a, plain_b, own_a, own_b, null_a, null_b = salts(running)
        assert len({plain_a, plain_b, own_a, own_b, None, "x"}) == 6
        assert (null_a, null_b) == (plain_a, plain_b)
        assert not any("northern" in str(salt) or len(str(salt)) != 64 for salt in salts(running))


async def test_a_tenant_cannot_name_the_salt_of_another() -> None:
    async with gateway(QUICK, **KEYED) as running:
        await ask(running, "a")
        (stolen,) = salts(running)
        await ask(running, "b", cache_salt=stolen)
        assert salts(running)[1] != stolen


@pytest.mark.parametrize("twice", [b'"cache_salt":"x",', b'"cache_s\\u0061lt":"x",'])
async def test_a_salt_sent_twice_or_spelt_otherwise_is_overridden(twice: bytes) -> None:
    body = b"{" + twice + json.dumps(chat("hi")).encode()[1:-1] + b"," + twice[:-1] + b"} \n"
    async with gateway(QUICK, **KEYED) as running:
        headers = {**running.headers("a"), "content-type": "application/json"}
        async with running.http.post(CHAT, data=body, headers=headers) as response:
            assert response.status == 200
        (seen,) = running.engines[0].stats().seen
        assert seen["body"].count("salt") == 1
        assert salts(running) != ["x"]


@pytest.mark.parametrize("path", RELAYED)
async def test_relayed_paths_carry_the_salt_too(path: str) -> None:
    member = Member(answers(200, {}))
    async with listening(member):
        others = [member.upstream(kind="vllm", health_period_s=0.05)]
        async with gateway(others=others, **KEYED) as running:
            for tenant in ("a", "b"):
                body = {"model": MODEL, "input": "hi", "cache_salt": "x"}
                assert (await running.send(body, path, running.headers(tenant))).status == 200
    first, second = (seen.fields["cache_salt"] for seen in member.seen)
    assert len({first, second, "x"}) == 3


async def test_a_vendor_is_sent_no_field_that_it_does_not_know() -> None:
    member = Member(answers(200, {"choices": []}))
    async with listening(member), gateway(others=[member.upstream()], **KEYED) as running:
        await running.post("hi", running.headers("a"))
    assert member.seen[0].fields == chat("hi")


@pytest.mark.parametrize("salt", ["", 7, ["x"], "x" * 1025])
async def test_a_salt_that_is_none_is_refused_by_name(salt: Any) -> None:
    async with gateway(QUICK, **KEYED) as running:
        for body, path in ((chat("hi"), CHAT), ({"model": MODEL, "input": "x"}, "/v1/responses")):
            answer = await running.send(body | {"cache_salt": salt}, path, running.headers("a"))
            assert (answer.status, answer.error["param"]) == (400, "cache_salt")
        assert running.requests() == [0]


async def test_media_cannot_be_named_in_the_memory_that_tenants_share() -> None:
    part = {"type": "image_url", "image_url": None, "uuid": "theirs"}
    body = {"model": MODEL, "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, part]}]}
    async with gateway(QUICK, **KEYED) as running:
        for path in (CHAT, "/v1/embeddings"):
            answer = await running.send(body, path, running.headers("a"))
            assert (answer.status, answer.error["param"]) == (400, "messages")
        assert running.requests() == [0]


@pytest.mark.parametrize(
    ("path", "field", "others"),
    [
        ("/v1/score", "documents", {"queries": "q"}),
        ("/v1/score", "text_2", {"text_1": "q"}),
        ("/score", "data_1", {"data_2": "q"}),
        ("/v1/score", "queries", {"items": "q"}),
        ("/v1/score", "items", {"queries": "q"}),
        ("/v1/rerank", "documents", {"query": "q"}),
        ("/v2/rerank", "query", {"documents": ["d"]}),
        ("/v2/embed", "inputs", {}),
        ("/pooling", "messages", {}),
    ],
)
@pytest.mark.parametrize("is_list", [False, True])
async def test_media_cannot_be_named_where_texts_are_compared_or_embedded(
    path: str, field: str, others: dict[str, Any], is_list: bool
) -> None:
    one = {"role": "user", "content": [{"type": "image_url", "image_url": None, "uuid": "theirs"}]}
    body = {"model": MODEL, field: ["plain", one] if is_list else one, **others}
    paths = {"paths": list(ENGINE_PATHS)}
    async with gateway(QUICK, upstream=paths, **KEYED) as running:
        answer = await running.send(body, path, running.headers("a"))
        assert (answer.status, answer.error["param"]) == (400, field)
        assert running.requests() == [0]


async def test_gateways_of_one_application_salt_alike_and_others_do_not() -> None:
    seen = []
    for secret in (b"1" * 32, b"1" * 32, b"2" * 32):
        async with gateway(QUICK, tenant_secret=secret, **KEYED) as running:
            await ask(running, "a")
            seen += salts(running)
    assert seen[0] == seen[1] != seen[2]


async def test_a_continuation_has_the_salt_of_its_beginning() -> None:
    upstreams = [{"priority": 0}, {"priority": 1}]
    async with gateway(QUICK, QUICK, upstreams=upstreams, **KEYED) as running:
        await running.engines[0].set_faults(Faults(die_after=2))
        for own in ({}, {"cache_salt": "x"}):
            answer = await ask(running, "a", stream=True, **own)
            assert answer.text
        assert (await running.traffic())["continued"] == 2
        assert salts(running, 1) == salts(running, 0)
        assert len(set(salts(running, 1))) == 2


async def test_another_tenants_document_is_computed_anew() -> None:
    """And the tenant's own is not."""
    async with gateway(QUICK, **KEYED) as running:
        cached = []
        for tenant in ("a", "a", "b", "b"):
            await running.post(DOCUMENT, running.headers(tenant))
            cached.append(running.engines[0].stats().cached_tokens)
        assert cached[0] == 0
        assert cached[2] == cached[1] > 0
        assert cached[3] == 2 * cached[1]


async def test_prefixes_may_be_shared_on_purpose() -> None:
    async with gateway(QUICK, gateway={"share_prefixes": True}, **KEYED) as running:
        for tenant in ("a", "b"):
            await running.post(DOCUMENT, running.headers(tenant))
        assert running.engines[0].stats().cached_tokens > 0
        assert salts(running) == [None, None]
        assert as_sent(running.engines[0].stats().seen[0]["body"]) == chat(DOCUMENT)


# ---- what a key may do ----


@pytest.mark.parametrize(
    ("best", "expected"), [(5, ["first", "second", "third"]), (0, ["first", "third", "second"])]
)
async def test_a_request_overtakes_its_tenants_others_only_as_far_as_the_key_allows(
    best: int, expected: list[str]
) -> None:
    one_place = {"max_requests": 1}
    hold = SimSettings(itl_ms=5, tokens=40, slots=1, keep_bodies=16)
    rights = {"a": {"best_priority": best}}
    async with (
        gateway(hold, upstream=one_place, tenants=["a"], rights=rights) as running,
        AsyncExitStack() as stack,
    ):
        asked = []
        for number, (text, priority) in enumerate([("first", "5"), ("second", "5"), ("third", "0")]):
            headers = {**running.headers("a"), "x-priority": priority}
            asked.append(await stack.enter_async_context(meanwhile(running.post(text, headers))))
            await running.until_traffic(lambda count, least=number: count["requests"] > least)
        await asyncio.gather(*asked)
    texts = [json.loads(seen["body"])["messages"][0]["content"] for seen in running.engines[0].stats().seen]
    assert texts == expected


@pytest.mark.parametrize(
    ("best", "sent", "told"), [(5, 0, 5), (5, "-3", 5), (5, 7, 7), (0, -3, 0), (0, 2, 2)]
)
async def test_the_bodys_priority_is_within_the_keys(best: int, sent: Any, told: int) -> None:
    async with gateway(QUICK, tenants=["a"], rights={"a": {"best_priority": best}}) as running:
        await ask(running, "a", priority=sent)
        assert json.loads(running.engines[0].stats().seen[0]["body"])["priority"] == told


# ---- the embedder ----


async def test_the_embedder_remembers_a_text_for_its_tenant_alone(
    folder: Path, prepared_models: ModelStore
) -> None:
    source = prepared_models.resolve("sentence-transformers/all-MiniLM-L6-v2")
    embedder = Embedder(EmbedderSettings(id="words", source=source, threads=1))
    async with (
        local_cache(folder, embedder, race=False, sampled="all") as cache,
        gateway(QUICK, handles=cache.handles, **cache.args, **KEYED) as running,
    ):

        async def hits_of(tenant: str, temperature: float) -> int:
            """Of another partition each time, so that the store has no answer, and the text is embedded."""
            before = embedder.recent.hits
            await ask(running, tenant, temperature=temperature)
            return embedder.recent.hits - before

        assert await hits_of("a", 0.1) == 0
        assert await hits_of("a", 0.2) == 1
        assert await hits_of("b", 0.1) == 0
        assert await hits_of("b", 0.2) == 1
        body = {"model": "words", "input": "an input"}
        for tenant, hits in (("a", 2), ("a", 3), ("b", 3), ("b", 4)):
            assert (await running.send(body, "/v1/embeddings", running.headers(tenant))).status == 200
            assert embedder.recent.hits == hits


# ---- the cache ----


async def test_a_tenants_users_share_answers_unless_they_are_kept_apart(folder: Path) -> None:
    for name, by, again in (("shared", [], "exact"), ("apart", ["user", "safety_identifier"], "miss")):
        (folder / name).mkdir()
        async with (
            local_cache(folder / name, race=False, partition_by=by) as cache,
            gateway(QUICK, handles=cache.handles, **cache.args, **KEYED) as running,
        ):
            for field in ("user", "safety_identifier"):
                tiers = [
                    (await ask(running, "a", **{field: user}, temperature=0)).headers["x-cache"]
                    for user in ("x", "x", "y")
                ]
                first = "miss" if by or field == "user" else "exact"
                assert tiers == [first, "exact", again]


# ---- Server-Timing ----


LATER = ("upstream", "store", "overhead", "total")
"""Known only at an answer's end."""


def steps(answer: Answered) -> list[str]:
    names = [step.partition(";")[0] for step in answer.headers["server-timing"].split(", ")]
    # These depend on the connections that are kept, on there being a near entry, and on how fast one asks.
    return [name for name in names if name not in ("connect", "decide", "turn")]


async def test_what_is_common_to_all_is_timed_for_those_alone_who_may_know(folder: Path) -> None:
    debug = {"x-debug-timing": "1"}
    rights = {"b": {"debug_timing": True}}
    async with (
        local_cache(folder, race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args, **KEYED, rights=rights) as running,
    ):
        plain = ["admit", "exact", "route", "upstream-ttft"]
        whole = ["admit", "exact", "embed", "search", "route", "upstream-ttft"]
        for tenant, headers, expected in (
            ("a", {}, plain),
            ("a", debug, plain),
            ("b", {}, plain),
            ("b", {"x-debug-timing": "0"}, plain),
            ("b", debug, whole),
            (ADMIN, {}, whole),
        ):
            sent = {**running.headers(tenant), **headers, "cache-control": "max-age=0"}
            assert steps(await running.post("hi", sent, stream=True)) == expected
            whole_answer = steps(await running.post("hi", sent))
            assert ("total" in whole_answer) == (expected == whole)
            assert [step for step in whole_answer if step not in LATER] == expected


async def test_a_hits_timing_is_shown_to_those_alone_who_may_know(folder: Path) -> None:
    async with (
        local_cache(folder, race=False, exact_entries=1) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args, **KEYED) as running,
    ):
        for tenant, hidden in (("a", True), (ADMIN, False)):
            headers = running.headers(tenant)
            await running.post("what is the capital of france", headers)

            async def hit(headers: dict[str, str] = headers) -> Answered | None:
                answer = await running.post("the capital of france what is", headers)
                return answer if answer.headers["x-cache"] == "semantic" else None

            assert await eventually(hit, within_s=5)
            answer = await hit()
            assert answer is not None
            assert ("embed" in steps(answer), "search" in steps(answer)) == (not hidden, not hidden)
            assert ("decide;" in answer.headers["server-timing"]) == (not hidden)


async def test_without_keys_all_of_a_requests_time_is_shown(folder: Path) -> None:
    async with (
        local_cache(folder, race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        assert {"embed", "search"} <= set(steps(await running.post("hi")))


# ---- routing ----


async def test_a_prefix_is_routed_to_where_the_same_tenants_lies() -> None:
    """Another tenant's request for the same text is not: it goes where it waits least."""
    two = [{"priority": 0}, {"priority": 0}]
    async with gateway(QUICK, QUICK, upstreams=two, gateway={"routing": "prefix"}, **KEYED) as running:
        home = (await running.post(DOCUMENT, running.headers("a"))).headers["x-served-by"]
        for _ in range(4):
            assert (await running.post(DOCUMENT, running.headers("a"))).headers["x-served-by"] == home
        assert (await running.post(DOCUMENT, running.headers("b"))).headers["x-served-by"] != home


async def test_without_keys_a_prefix_is_found_again() -> None:
    two = [{"priority": 0}, {"priority": 0}]
    async with gateway(QUICK, QUICK, upstreams=two, gateway={"routing": "prefix"}) as running:
        served = {(await running.post(DOCUMENT)).headers["x-served-by"] for _ in range(5)}
        assert len(served) == 1
        assert sum(engine.stats().cached_tokens for engine in running.engines) > 0


async def test_sessions_of_one_name_are_two_tenants_two_sessions() -> None:
    four = [{"priority": 0}] * 4
    async with gateway(*[QUICK] * 4, upstreams=four, gateway={"routing": "session"}, **KEYED) as running:
        homes: dict[str, list[str]] = {"a": [], "b": []}
        for number in range(12):
            for tenant, found in homes.items():
                headers = {**running.headers(tenant), "x-session-id": f"s-{number}"}
                served = {(await running.post("hi", headers)).headers["x-served-by"] for _ in range(2)}
                assert len(served) == 1
                found.extend(served)
        assert homes["a"] != homes["b"]
