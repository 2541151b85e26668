"""Requests through Serve's proxy and the gateway to a scripted engine."""

from __future__ import annotations

import asyncio
import json
import time

import aiohttp
import pytest
from support.bad_input import raw_request
from support.graph import AS_ADMIN, CHAT, Graph, chat, eventually
from support.scripted_engine import chat_events


async def test_a_stream_is_relayed_byte_by_byte(http: aiohttp.ClientSession, plain: Graph) -> None:
    async with http.post(plain.url + CHAT, json=chat("say a b c", stream=True)) as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["x-cache"] == "bypass"
        assert "upstream-ttft;dur=" in response.headers["server-timing"]
        body = await response.read()
    assert body == b"".join(chat_events("scripted", "say", "a b c")) + b"data: [DONE]\n\n"


async def test_an_answer_that_is_not_streamed_is_relayed(http: aiohttp.ClientSession, plain: Graph) -> None:
    async with http.post(plain.url + CHAT, json=chat("say a b")) as response:
        body = await response.json()
    assert body["choices"][0]["message"]["content"] == "a b"
    assert body["usage"]["completion_tokens"] == 2


async def test_a_request_id_is_echoed_and_passed_on_once(http: aiohttp.ClientSession, plain: Graph) -> None:
    headers = {"x-request-id": "mine-1"}
    async with http.post(plain.url + CHAT, json=chat("say id"), headers=headers) as response:
        assert response.headers.getall("x-request-id") == ["mine-1"]
    async with http.post(plain.url + CHAT, json=chat("say id")) as response:
        assert len(response.headers.getall("x-request-id")) == 1


async def test_unknown_fields_reach_the_engine_unharmed(http: aiohttp.ClientSession, plain: Graph) -> None:
    fields = {
        "logprobs": True,
        "tools": [{"type": "function"}],
        "stop": ["x"],
        "what_is_this": {"a": [1, None]},
    }
    async with http.post(plain.url + CHAT, json=chat("say unharmed", **fields)) as response:
        assert response.status == 200
    replicas = await plain.engine().broadcast("seen").results_async()
    bodies = [seen["body"] for replica in replicas for seen in replica]
    # An engine gets the tenant's salt with everything.
    unsalted = [{name: body[name] for name in body if name != "cache_salt"} for body in bodies]
    assert chat("say unharmed", **fields) in unsalted


async def test_the_clients_key_never_reaches_the_engine(http: aiohttp.ClientSession, main: Graph) -> None:
    async with http.post(main.url + CHAT, json=chat("say no key"), headers=main.headers()) as response:
        assert response.status == 200
    (seen,) = await main.engine().broadcast("seen").results_async()
    assert all("authorization" not in request["headers"] for request in seen)
    assert main.keys["a"] not in json.dumps([request["headers"] for request in seen])


async def test_concurrent_requests_spread_over_the_replicas(
    http: aiohttp.ClientSession, plain: Graph
) -> None:
    words = "say " + "w " * 100

    async def served_by() -> str:
        async with http.post(plain.url + CHAT, json=chat(words, stream=True)) as response:
            await response.read()
            return response.headers["x-served-by"]

    replicas = await asyncio.gather(*(served_by() for _ in range(8)))
    # By expected wait, not by count: how many each one gets depends on how far the others are.
    assert len(set(replicas)) == 2


async def test_other_paths_are_relayed_to_the_model_named(http: aiohttp.ClientSession, plain: Graph) -> None:
    async with http.post(f"{plain.url}/tokenize", json={"model": "scripted", "prompt": "a b c"}) as response:
        assert (response.status, await response.json()) == (200, {"count": 3})


async def test_an_engine_error_before_the_first_byte_is_a_clean_502(
    http: aiohttp.ClientSession, plain: Graph
) -> None:
    for text in ("status 500", "error first"):
        async with http.post(plain.url + CHAT, json=chat(text, stream=True)) as response:
            body = await response.text()
            assert response.status == 502, text
            assert json.loads(body)["error"]["type"] == "upstream_error"
            assert "Traceback" not in body


async def test_a_death_in_the_middle_ends_with_an_error_event(
    http: aiohttp.ClientSession, plain: Graph
) -> None:
    async with http.post(plain.url + CHAT, json=chat("die after 3", stream=True)) as response:
        assert response.status == 200
        body = await response.read()
    assert body.startswith(b"".join(chat_events("scripted", "die", "after 3")[:3]))
    last = body.rstrip().rsplit(b"\n\n", 1)[1]
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "upstream_failed"


async def test_a_deadline_before_the_first_byte_is_a_504(http: aiohttp.ClientSession, plain: Graph) -> None:
    headers = {"x-request-timeout-ms": "200"}
    async with http.post(plain.url + CHAT, json=chat("hang before"), headers=headers) as response:
        body = await response.json()
    assert response.status == 504
    assert body["error"]["param"] == "x-request-timeout-ms"


async def test_a_deadline_in_the_middle_is_an_error_event(http: aiohttp.ClientSession, plain: Graph) -> None:
    headers = {"x-request-timeout-ms": "300"}
    async with http.post(
        plain.url + CHAT, json=chat("hang after 2", stream=True), headers=headers
    ) as response:
        body = await response.read()
    assert response.status == 200
    assert b'"code":"deadline_exceeded"' in body.rstrip().rsplit(b"\n\n", 1)[1]


@pytest.mark.parametrize("text", ["hang before", "hang after 2"])
async def test_a_client_that_leaves_aborts_the_engine(
    http: aiohttp.ClientSession, plain: Graph, text: str
) -> None:
    async def aborted() -> int:
        return sum(await plain.engine().broadcast("aborted").results_async())

    before = await aborted()
    request = asyncio.create_task(_leave_during(http, plain.url, text))
    await asyncio.wait_for(request, 10)
    left = time.monotonic()

    async def one_more() -> bool:
        return await aborted() == before + 1

    assert await eventually(one_more, within_s=5), f"not aborted after {time.monotonic() - left:.2f} s"
    async with http.post(plain.url + CHAT, json=chat("say next")) as response:
        assert response.status == 200


async def _leave_during(http: aiohttp.ClientSession, url: str, text: str) -> None:
    """Close the connection once the first chunk is there, or after half a second without one."""
    try:
        async with http.post(
            url + CHAT, json=chat(text, stream=True), timeout=aiohttp.ClientTimeout(0.5)
        ) as response:
            await response.content.readany()
            response.close()
    except TimeoutError:
        return


async def test_the_private_listener_answers_403_without_the_secret(
    http: aiohttp.ClientSession, plain: Graph
) -> None:
    async with http.get(f"{plain.url}/admin/fleet", headers=AS_ADMIN) as response:
        fleet = await response.json()
    assert "secret" not in json.dumps(fleet)
    url = fleet["scripted"][0]["url"]
    for headers in ({}, {"x-promptly-secret": "guess"}):
        async with http.post(url + CHAT, json=chat("say hi"), headers=headers) as response:
            assert response.status == 403
            assert (await response.json())["error"]["code"] == "private_listener"


@pytest.mark.parametrize(
    "path", ["/v1/../metrics", "/v1/%2e%2e/metrics", "/v1/a/%2E%2E/%2e%2e/metrics", "/v1/."]
)
async def test_a_path_that_climbs_reaches_no_engine(plain: Graph, path: str) -> None:
    body = json.dumps({"model": "scripted", "messages": []}).encode()
    status, _ = await raw_request(plain.url + path, b"", body)
    assert status == 404
    replicas = await plain.engine().broadcast("seen").results_async()
    assert not [seen for replica in replicas for seen in replica if "metrics" in seen["path"]]
