"""What a gateway logs of its requests: a line each, with both ids, and never a text."""

from __future__ import annotations

import json
import logging

import pytest
from sim_engine import SimSettings
from support.gateway import Running, chat, gateway
from support.graph import eventually
from support.handles import LocalHandle

TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"x-request-id": "mine", "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


def lines(caplog: pytest.LogCaptureFixture, having: str = "request_id=") -> list[str]:
    return [message for message in caplog.messages if having in message]


async def until_lines(caplog: pytest.LogCaptureFixture, count: int, having: str = "request_id=") -> list[str]:
    async def there() -> bool:
        return len(lines(caplog, having)) >= count

    assert await eventually(there, within_s=5), caplog.messages
    return lines(caplog, having)


async def test_a_request_is_one_line_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ray.serve"):
        async with gateway(SimSettings(itl_ms=1, tokens=5, prompt_tokens_details=True)) as running:
            answer = await running.post("a secret plan", HEADERS, stream=True)
            (line,) = await until_lines(caplog, 1)
    assert line.startswith("request_id=mine POST /v1/chat/completions 200 ")
    for part in (f"trace_id={TRACE}", "tenant=default", "model=sim", "member=e0", "finish=stop", "cached=0"):
        assert part in line
    assert "/6 " in line  # five words and the end
    assert "secret" not in caplog.text
    assert answer.text not in caplog.text


async def test_as_json_a_line_is_the_whole_record(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ray.serve"):
        async with gateway(logs={"requests": "json"}) as running:
            await running.post("hello", HEADERS)
            (line,) = await until_lines(caplog, 1, '"request_id"')
    value = json.loads(line)
    assert (value["request_id"], value["trace_id"], value["status"]) == ("mine", TRACE, 200)
    assert "upstream-ttft" in {step["name"] for step in value["steps"]}


async def test_refusals_are_logged_but_cannot_fill_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ray.serve"):
        async with gateway(tenants=("a",), logs={"refused_per_s": 1e-9}) as running:
            for _ in range(5):
                assert (await running.post("hello")).status == 401
            await until_lines(caplog, 1)
            assert (await ask(running)) == 200
            await until_lines(caplog, 2)
    refused, served = lines(caplog)
    assert " 401 error=" in refused
    assert " 200 tenant=a " in served
    assert lines(caplog, "have no line") == [
        "4 refused requests of clients without a key have no line (logs.refused_per_s)"
    ]


async def ask(running: Running) -> int:
    return (await running.send(chat("hello"), headers=running.headers("a"))).status


async def test_other_lines_name_the_request_that_they_belong_to(caplog: pytest.LogCaptureFixture) -> None:
    embedder = LocalHandle(object())
    async with gateway(handles={"embedder": embedder}, embedder={"id": "e", "source": "e"}) as running:
        with embedder.failing("describe"):
            answer = await running.send({"model": "e", "input": "hello"}, "/v1/embeddings", HEADERS)
        (line,) = await until_lines(caplog, 1, "request mine failed")
    assert answer.status == 500
    assert line.endswith(f"[request_id=mine trace_id={TRACE}]")
