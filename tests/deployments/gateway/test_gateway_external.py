"""Servers that are not ours, as members of the fleet."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientSession, web
from scripted_member import Meddler, Member, answers, listening, says
from sim_engine import SimEngine
from support.gateway import FAST, MODEL, Faults, SimSettings, chat, gateway

from deployments.gateway.placement.external import external_upstreams
from serve_app.errors import SettingsError
from serve_app.settings import parse_args

KEY = "vendor-secret-1"
UPSTREAM = {"name": "u", "url": "http://host:8000/v1"}


def parsed(**upstream: Any) -> Any:
    return parse_args({"models": [{"id": MODEL, "upstreams": [UPSTREAM | upstream]}]}, source="file.yaml")


# ---- keys ----


@pytest.mark.parametrize("kind", ["openai", "vllm"])
async def test_an_upstream_gets_its_own_key_and_never_the_clients(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("VENDOR_KEY", KEY)
    settings = SimSettings(api_key=KEY, keep_bodies=8, itl_ms=0, tokens=4)
    upstream = {"key_env": "VENDOR_KEY", "kind": kind}
    async with gateway(settings, upstream=upstream, tenants=["a"]) as running:
        sent = {**running.headers("a"), "x-api-key": running.keys["a"], "cookie": "k=" + running.keys["a"]}
        for stream in (False, True):
            assert (await running.post("hi", sent, stream=stream)).text
        seen = running.engines[0].stats().seen
        assert [request["headers"]["authorization"] for request in seen] == [f"Bearer {KEY}"] * 2
        assert running.keys["a"] not in json.dumps(seen)
        assert KEY not in json.dumps(await running.get("/admin/fleet"))


async def test_an_upstream_without_a_key_gets_no_authorization() -> None:
    settings = SimSettings(keep_bodies=8, itl_ms=0, tokens=4)
    async with gateway(settings, tenants=["a"]) as running:
        assert (await running.post("hi", running.headers("a"))).status == 200
        assert "authorization" not in running.engines[0].stats().seen[0]["headers"]


async def test_two_upstreams_get_each_its_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_0", "secret-0")
    monkeypatch.setenv("KEY_1", "secret-1")
    first, second = SimSettings(api_key="secret-0", keep_bodies=8), SimSettings(api_key="secret-1", tokens=4)
    upstreams = [{"key_env": "KEY_0"}, {"key_env": "KEY_1", "priority": 1}]
    async with gateway(first, second, upstreams=upstreams) as running:
        await running.engines[0].set_faults(Faults(status=500, times=1))
        answer = await running.post("hi")
        assert (answer.status, answer.headers["x-served-by"]) == (200, "e1")


def test_a_key_that_is_not_there_is_named_before_anything_starts() -> None:
    settings = parsed(key_env="NO_SUCH_KEY")
    for environment in ({}, {"NO_SUCH_KEY": ""}):
        with pytest.raises(SettingsError, match=r"'sim'.*'u'.*NO_SUCH_KEY.*`key_env`"):
            external_upstreams(settings, environment)


def test_a_key_is_not_shown_where_an_upstream_is_printed() -> None:
    (external,) = external_upstreams(parsed(key_env="K"), {"K": KEY})
    assert KEY not in f"{external!r} {external.report!r}"
    assert external.report.headers == {"authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize("value", [f"{KEY}\n", f" {KEY} ", f"{KEY}\r\n"])
def test_a_key_that_a_file_ended_with_a_newline_is_usable(value: str) -> None:
    """No HTTP header can hold a newline: the member would never be asked how it is, and the reason would
    show nowhere."""
    (external,) = external_upstreams(parsed(key_env="K"), {"K": value})
    assert external.report.headers["authorization"] == f"Bearer {KEY}"


# ---- the model's name and the path ----


async def test_an_upstream_is_asked_for_its_own_name_of_the_model() -> None:
    settings = SimSettings(model="vendor/big-1", keep_bodies=8, itl_ms=0, tokens=4)
    fields = {"temperature": 0.25, "user": "ü", "x_unknown": [1, None]}
    async with gateway(settings, upstream={"model": "vendor/big-1", "kind": "openai"}) as running:
        for stream in (False, True):
            assert (await running.post("hi", stream=stream, **fields)).text
        bodies = [json.loads(seen["body"]) for seen in running.engines[0].stats().seen]
        assert bodies == [
            chat("hi", stream=stream, **fields) | {"model": "vendor/big-1"} for stream in (False, True)
        ]


async def test_the_clients_very_bytes_reach_an_upstream_that_needs_no_change() -> None:
    body = b'{ "model":"sim",\n "messages":[{"role":"user","content":"\\u0068i"}], "temperature":1e0 }'
    settings = SimSettings(keep_bodies=1, itl_ms=0, tokens=4)
    as_json = {"content-type": "application/json; charset=utf-8"}
    for salted in (False, True):
        async with gateway(settings, upstream={"cache_salt": salted}) as running:
            async with running.http.post("/v1/chat/completions", data=body, headers=as_json) as response:
                assert response.status == 200
            seen = running.engines[0].stats().seen[0]["body"].encode()
            assert seen.partition(b',"cache_salt":')[0] == (body[:-1] if salted else body)


async def test_a_relayed_path_is_asked_for_with_the_upstreams_name_too() -> None:
    member = Member(answers(200, {"data": []}))
    async with listening(member):
        other = member.upstream(model="vendor/embed", health_period_s=0.05)
        async with gateway(others=[other]) as running:
            answer = await running.send({"model": MODEL, "input": "x"}, "/v1/embeddings")
            assert answer.status == 200
    assert [(seen.path, seen.fields) for seen in member.seen] == [
        ("/v1/embeddings", {"model": "vendor/embed", "input": "x"})
    ]


@pytest.mark.parametrize("prefix", ["/v1", "/openai/v1", "/api", "/v2", "/v1/account/openai"])
async def test_paths_lie_under_the_prefix_of_the_upstreams_url(prefix: str) -> None:
    """``/v1/…`` is how some vendors' URLs begin that do not end there."""
    member = Member(answers(200, {"choices": []}))
    member.handle = only_under(prefix, member)  # type: ignore[method-assign]
    async with listening(member):
        other = member.upstream(url=f"{member.url}{prefix}/", health_period_s=0.05)
        async with gateway(others=[other], ready=False) as running, asyncio.timeout(2):
            await until_ready(running)
            for path in ("/v1/chat/completions", "/v1/embeddings"):
                assert (await running.send(chat("hi"), path)).status == 200
    assert [seen.path for seen in member.seen] == [f"{prefix}/chat/completions", f"{prefix}/embeddings"]
    assert member.asked == {f"{prefix}/models"}


@pytest.mark.parametrize("path", ["/ping", "/v1/ping"])
async def test_a_health_path_is_a_path_on_the_upstreams_host(path: str) -> None:
    member = Member(answers(200, {}))
    async with listening(member):
        other = member.upstream(url=f"{member.url}/openai/v1", health_path=path, health_period_s=0.05)
        async with gateway(others=[other], ready=False) as running, asyncio.timeout(2):
            await until_ready(running)
    assert member.asked == {path}


def only_under(prefix: str, member: Member) -> Any:
    handle = member.handle

    async def checked(request: web.Request) -> web.StreamResponse:
        known = request.path.startswith(f"{prefix}/") and "/v1/v1" not in request.path
        asked = f"{prefix}/models" == request.path or request.method == "POST"
        return await handle(request) if known and asked else web.Response(status=404)

    return checked


async def until_ready(running: Any) -> None:
    while True:
        async with running.http.get("/ready") as response:
            if response.status == 200:
                return
        await asyncio.sleep(0.01)


# ---- health ----


async def test_an_upstream_that_is_not_well_is_not_asked_until_it_is_again() -> None:
    async with gateway(FAST, FAST, upstreams=[{}, {"priority": 1}]) as running:
        ill, other = running.engines
        await ill.set_faults(Faults(refuse=True))
        await running.until_serving(0, False)
        asked = ill.stats().requests
        for _ in range(3):
            assert (await running.post("hi")).headers["x-served-by"] == "e1"
        assert (ill.stats().requests, other.stats().requests) == (asked, 3)
        assert (await running.traffic())["failovers"] == 0
        await ill.set_faults(Faults())
        await running.until_serving(0, True)
        assert (await running.post("hi")).headers["x-served-by"] == "e0"


async def test_an_upstream_that_comes_after_the_gateway_is_found() -> None:
    async with gateway() as running:
        url = (await running.member())["url"]
        port = int(url.rpartition(":")[2])
        await running.engines[0].kill()
        await running.until_serving(0, False)
        async with running.http.get("/ready") as response:
            assert response.status == 503
        later = SimEngine(FAST)
        await later.start(port=port)
        try:
            await running.until_serving(0, True)
            assert (await running.post("hi")).text
        finally:
            await later.stop()


async def test_an_upstream_that_refuses_its_key_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG_KEY", "wrong")
    settings = SimSettings(api_key=KEY)
    async with gateway(settings, upstream={"key_env": "WRONG_KEY", "kind": "openai"}, ready=False) as running:
        async with running.http.get("/ready") as response:
            assert response.status == 503
        assert running.engines[0].stats().requests == 0


# ---- who is asked first ----


async def test_equals_are_asked_as_often_as_their_weights_say() -> None:
    quick = SimSettings(itl_ms=0, tokens=1)
    upstreams = [{"weight": 3.0}, {"weight": 1.0}]
    async with gateway(quick, quick, upstreams=upstreams, gateway={"routing": "round_robin"}) as running:
        for _ in range(16):
            assert (await running.post("hi")).status == 200
        assert running.requests() == [12, 4]


async def test_own_members_first_a_vendor_when_they_are_full() -> None:
    slow = SimSettings(itl_ms=20, tokens=400)
    upstreams = [
        {"max_requests": 2, "priority": 0},
        {"max_requests": 1, "priority": 1},
        {"max_requests": 9, "priority": 2},
    ]
    async with gateway(slow, slow, slow, upstreams=upstreams) as running:

        async def served_by(stream: Any) -> str:
            return str((await stream.__aenter__()).headers["x-served-by"])

        streams = [running.stream(f"text {number}") for number in range(5)]
        assert [await served_by(stream) for stream in streams] == ["e0", "e0", "e1", "e2", "e2"]
        await streams[1].__aexit__(None, None, None)
        await running.engines[0].until(lambda stats: stats.aborted == 1)
        async with running.stream("next") as stream:
            assert stream.headers["x-served-by"] == "e0"
        for each in (streams[0], *streams[2:]):
            await each.__aexit__(None, None, None)
        await running.until_idle()


async def test_a_vendor_serves_while_own_members_are_gone() -> None:
    upstreams = [{"priority": 0, "health_period_s": 60.0}, {"priority": 3}]
    async with gateway(FAST, FAST, upstreams=upstreams) as running:
        await running.engines[0].kill()
        for _ in range(3):
            answer = await running.post("hi", stream=True)
            assert answer.text
            assert answer.headers["x-served-by"] == "e1"


async def test_an_upstream_never_has_more_than_its_own_bound() -> None:
    """`max_requests_per_replica` is for managed replicas: a vendor's limit is the vendor's."""
    slow = SimSettings(itl_ms=5, tokens=40)
    async with gateway(slow, upstream={"max_requests": 1}, model={"max_requests_per_replica": 4}) as running:
        assert (await running.member())["limit"] == 1


# ---- what differs in what it answers ----


async def test_an_upstreams_stream_reaches_the_client_byte_by_byte() -> None:
    events = [b'{"choices":[{"delta":{"content":"a"}}],"x":1}', b'{"odd":"\xc3\xbc"}', b"[DONE]"]
    member = Member(says(*events))
    async with listening(member), gateway(others=[member.upstream(health_period_s=0.05)]) as running:
        answer = await running.post("hi", stream=True)
        assert answer.body == b"".join(b"data: " + event + b"\n\n" for event in events)
        assert answer.headers["x-served-by"] == "member"
    assert member.seen[0].fields == chat("hi", stream=True)


async def test_a_vllm_behind_another_prefix_continues_answers() -> None:
    """Its context length lies under its own prefix too: without it nothing could be continued."""
    engine = SimEngine(SimSettings(itl_ms=0, tokens=8))
    url = await engine.start()
    async with ClientSession() as http:
        meddler = Meddler(http, url)

        async def strip(request: web.Request) -> web.StreamResponse:
            path = request.path.replace("/inference/v1", "/v1")
            if request.method == "GET":
                async with http.get(url + path) as answer:
                    return web.Response(body=await answer.read(), status=answer.status)
            return await meddler(request.clone(rel_url=path))

        member = Member(meddler)
        member.handle = strip  # type: ignore[method-assign]
        async with listening(member):
            other = member.upstream(url=f"{member.url}/inference/v1", kind="vllm", health_period_s=0.05)
            async with gateway(
                SimSettings(itl_ms=1, tokens=8), upstreams=[{}], others=[other | {"priority": 1}]
            ) as running:
                whole = await running.post("hi", stream=True)
                await running.engines[0].set_faults(Faults(die_after=3, times=1))
                continued = await running.post("hi", stream=True)
                assert continued.text == whole.text
                assert (await running.traffic())["continued"] == 1
    await engine.stop()


# ---- wrong settings ----


@pytest.mark.parametrize(
    ("upstream", "expected"),
    [
        ({"url": "host:8000/v1"}, "url = 'host:8000/v1': expected a base URL such as"),
        ({"url": "ftp://host/v1"}, "url = 'ftp://host/v1': expected a base URL such as"),
        ({"url": "http://host:99999/v1"}, "url = 'http://host:99999/v1': "),
        ({"url": "http://host:port/v1"}, "url = 'http://host:port/v1': "),
        ({"url": "http:///v1"}, "url = 'http:///v1': expected a base URL such as"),
        ({"url": "http://host/v1?key=1"}, "expected a base URL such as"),
        ({"url": "http://user@host/v1"}, "a URL holds no key: name a variable in `key_env`"),
        ({"kind": "anthropic"}, "kind = 'anthropic': expected: 'openai' or 'vllm'"),
        ({"name": "a b"}, "name = 'a b': expected"),
        ({"name": ""}, "name = '': expected"),
        ({"priority": -1}, "priority = -1: expected: greater than or equal to 0"),
        ({"weight": 0}, "weight = 0: expected: greater than 0"),
        ({"max_requests": 0}, "max_requests = 0: expected: greater than or equal to 1"),
        ({"health_path": "health"}, "health_path = 'health': expected"),
        ({"health_period_s": 0}, "health_period_s = 0: expected: greater than 0"),
        ({"key": "abc"}, "key = (hidden): unknown key; did you mean 'key_env'?"),
    ],
)
def test_a_wrong_upstream_is_one_message(upstream: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parsed(**upstream)
    assert "file.yaml: models[0].upstreams[0]." in str(caught.value)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({}, "nothing serves this model: give `source` and `engine`, or `upstreams`"),
        ({"upstreams": []}, "nothing serves this model"),
        ({"source": "owner/m", "upstreams": [UPSTREAM]}, "`engine` is missing"),
        ({"engine": {"accelerator": "cpu"}, "upstreams": [UPSTREAM]}, "`source` is missing"),
        ({"upstreams": [UPSTREAM, UPSTREAM]}, "upstream name given twice: u"),
    ],
)
def test_a_model_that_nothing_serves_is_refused(model: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError, match=r"file\.yaml: models") as caught:
        parse_args({"models": [{"id": MODEL, **model}]}, source="file.yaml")
    assert expected in str(caught.value)


@pytest.mark.parametrize("url", [f"http://user:{KEY}@host/v1", f"https://host/v1?api_key={KEY}"])
def test_a_secret_in_a_url_is_not_repeated_in_the_message(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parsed(url=url)
    assert KEY not in str(caught.value)
