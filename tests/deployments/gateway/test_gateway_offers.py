"""Which paths of a server clients reach with our key, and that the key does not come back to them."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from typing import Any

import pytest
from aiohttp import web
from scripted_member import Member, answers, begin, chunk, listening, says
from support.gateway import MODEL, Running, SimSettings, gateway
from support.graph import CHAT

from serve_app.errors import SettingsError
from serve_app.settings import parse_args

KEY = "vendor/secret-key-123"
LOOKED_AT = {"health_period_s": 0.05}
BODY = {"model": MODEL, "input": "x", "training_file": "file-1"}


# ---- what is offered ----

NOT_OFFERED = [
    "/v1/fine_tuning/jobs",
    "/v1/batches",
    "/v1/files",
    "/v1/images/generations",
    "/v1/assistants",
    "/v1/audio/speech",
    "/v1/load_lora_adapter",
    "/tokenize",
]


@pytest.mark.parametrize("path", NOT_OFFERED)
async def test_a_vendor_is_asked_for_nothing_but_what_it_may_be_asked_for(path: str) -> None:
    member = Member(answers(200, {}))
    async with listening(member), gateway(others=[member.upstream(**LOOKED_AT)], tenants=["a"]) as running:
        answer = await running.send(BODY, path, running.headers("a"))
        assert (answer.status, answer.error["code"]) == (404, "path_not_offered")
        assert path in answer.error["message"]
        assert "models[].upstreams[].paths" in answer.error["message"]
        assert (await running.send(BODY, path)).status == 401, "nobody without a key learns what is offered"
    assert member.seen == []


TRICKS = [
    "/v1/../v1/files",
    "/v1/chat/completions/../../files",
    "/v1/%2e%2e/v1/files",
    "/v1/embeddings/%2e%2e/files",
    "/v1/embeddings/..%2ffiles",
    "/v1/embeddings%2f..%2ffiles",
    "/v1/%252e%252e/files",
    "/v1//files",
    "//v1/files",
    "/v1/./files",
    "/v1/files%3fx=/v1/embeddings",
    "/v1/files?x=/v1/embeddings",
    "/v1/files;/v1/embeddings",
    "/v1/files%23/v1/embeddings",
    "/v1/files%00",
    "/V1/files",
    "/v1/embeddings%20",
    "/v1/embeddings%0a",
    "/v1\\files",
    "http://vendor/v1/files",
]


@pytest.mark.parametrize("target", TRICKS)
async def test_no_way_to_write_a_path_gets_around_what_is_offered(target: str) -> None:
    member = Member(answers(200, {}))
    async with listening(member), gateway(others=[member.upstream(**LOOKED_AT)]) as running:
        status = await raw_post(running, target, BODY)
        assert 400 <= status < 500
    assert member.seen == []


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        ("/v1/embeddings?x=/v1/files", "/v1/embeddings"),
        ("/v1/%65mbeddings", "/v1/embeddings"),
        ("/v1/embeddings?x=../../files#y", "/v1/embeddings"),
    ],
)
async def test_what_is_offered_is_reached_however_it_is_written(target: str, reached: str) -> None:
    member = Member(answers(200, {}))
    async with listening(member), gateway(others=[member.upstream(**LOOKED_AT)]) as running:
        assert await raw_post(running, target, BODY) == 200
    assert [seen.path for seen in member.seen] == [reached]


async def raw_post(running: Running, target: str, fields: dict[str, Any]) -> int:
    """The status of an answer to a target that is sent as it is written here."""
    host, port = running.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(fields).encode()
    head = (
        f"POST {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    try:
        writer.write(head.encode() + body)
        async with asyncio.timeout(5):
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("path", ["/v1/images/edits", "/v1/files"])
async def test_what_takes_uploads_is_not_offered(path: str) -> None:
    async with gateway() as running:
        answer = await running.send(BODY, path)
        assert (answer.status, answer.error["code"]) == (404, "path_not_offered")
        assert path not in (await running.get("/openapi.json"))["paths"]


async def test_a_setting_offers_more_or_less() -> None:
    more, less = Member(answers(200, {"by": "more"})), Member(answers(200, {"by": "less"}))
    async with listening(more, less):
        others = [
            less.upstream(name="less", paths=["/v1/embeddings"], **LOOKED_AT),
            more.upstream(name="more", paths=["/v1/embeddings", "/detokenize", CHAT], priority=1),
        ]
        async with gateway(others=others) as running:
            assert (await running.send(BODY, "/v1/embeddings")).json == {"by": "less"}
            for _ in range(2):
                assert (await running.send(BODY, "/detokenize")).json == {"by": "more"}
            assert (await running.post("hi")).status == 200
            refused = await running.post("hi", stream=True, model=MODEL)
            assert refused.headers["x-served-by"] == "more"
            answer = await running.send({"model": MODEL, "prompt": "x"}, "/v1/completions")
            assert (answer.status, answer.error["code"]) == (404, "path_not_offered")
    assert {seen.path for seen in less.seen} == {"/v1/embeddings"}


async def test_a_request_that_waits_for_a_path_holds_up_nobody_else() -> None:
    """It is first in line, and those that have room do not offer what it asks for."""
    slow = SimSettings(itl_ms=20, tokens=2000)
    well = Member(answers(200, {"choices": []}))
    async with listening(well):
        others = [well.upstream(priority=1, max_requests=1, **LOOKED_AT)]
        upstreams = [{"max_requests": 1, "paths": ["/detokenize", CHAT]}]
        async with gateway(slow, upstreams=upstreams, others=others) as running, running.stream("long"):
            waits = asyncio.ensure_future(running.send(BODY, "/detokenize"))
            await running.until_traffic(lambda traffic: traffic["queued"] == 1)
            async with asyncio.timeout(8):
                answer = await running.post("short")
            assert (answer.status, answer.headers["x-served-by"]) == (200, "member")
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)


@pytest.mark.parametrize(
    "path",
    ["/v1/../x", "/v1/", "v1/files", "/v1//x", "/v1/x?y", "/v1/%2e", "/v1/{id}", "/admin/cache", "/v1"],
)
def test_a_path_that_could_not_be_asked_for_is_refused_in_the_settings(path: str) -> None:
    upstream = {"name": "u", "url": "http://host/v1", "paths": [path]}
    with pytest.raises(SettingsError, match=r"models\[0\]\.upstreams\[0\]\.paths"):
        parse_args({"models": [{"id": MODEL, "upstreams": [upstream]}]}, source="file")


# ---- the key does not come back ----


def said(form: str) -> str:
    return f"Wrong: you sent {form}, try another"


FORMS = {
    "as it is": KEY,
    "with its scheme": f"Bearer {KEY}",
    "escaped for a URL": "vendor%2Fsecret-key-123",
    "in base64": b64encode(KEY.encode()).decode(),
}
SHAPES: dict[str, Any] = {
    "OpenAI's": lambda form: {"error": {"message": said(form), "param": form, "code": form, "type": form}},
    "nested": lambda form: {"error": {"message": {"deep": [form]}, "code": {"deep": [form]}}},
    "detail": lambda form: {"detail": said(form)},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("status", [400, 404, 429, 500])
async def test_a_key_in_an_error_does_not_reach_the_client(
    monkeypatch: pytest.MonkeyPatch, status: int, form: str, shape: str
) -> None:
    monkeypatch.setenv("VENDOR_KEY", KEY)
    member = Member(answers(status, SHAPES[shape](FORMS[form]), retry_after=FORMS[form]))
    async with listening(member):
        others = [member.upstream(key_env="VENDOR_KEY", **LOOKED_AT)]
        async with gateway(others=others) as running:
            for path in (CHAT, "/v1/embeddings"):
                answer = await running.send({**BODY, "messages": [{"role": "user", "content": "x"}]}, path)
                assert answer.status == (status if status < 500 else 502)
                assert_clean(answer)
    assert member.seen[0].headers["authorization"] == f"Bearer {KEY}"


async def test_a_key_with_escapes_in_json_does_not_reach_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_KEY", KEY)
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in KEY)

    async def answer(_: web.Request) -> web.Response:
        body = f'{{"error":{{"message":"{escaped} and {KEY.replace("/", chr(92) + "/")}"}}}}'
        return web.Response(status=400, text=body, content_type="application/json")

    member = Member(answer)
    async with listening(member):
        others = [member.upstream(key_env="VENDOR_KEY", **LOOKED_AT)]
        async with gateway(others=others) as running:
            assert_clean(await running.post("hi"))


@pytest.mark.parametrize("is_error", [True, False])
@pytest.mark.parametrize("pieces", [1, 7, 1000])
async def test_a_key_in_a_stream_does_not_reach_the_client(
    monkeypatch: pytest.MonkeyPatch, pieces: int, is_error: bool
) -> None:
    """Whatever the pieces are in which it comes."""
    monkeypatch.setenv("VENDOR_KEY", KEY)
    error = json.dumps({"error": {"message": said(KEY), "code": 500}}).encode()
    event = error if is_error else chunk(said(KEY))
    body = b"".join(b"data: " + each + b"\n\n" for each in (chunk("one"), event, b"[DONE]"))

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        for start in range(0, len(body), pieces):
            await response.write(body[start : start + pieces])
            await asyncio.sleep(0)
        return response

    member = Member(answer)
    async with listening(member):
        others = [member.upstream(key_env="VENDOR_KEY", **LOOKED_AT)]
        async with gateway(others=others) as running:
            got = await running.post("hi", stream=True)
            assert_clean(got)
            assert is_error or got.body == body.replace(KEY.encode(), b"[redacted]")


async def test_a_key_in_a_streams_first_event_or_in_a_whole_answer_does_not_reach_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VENDOR_KEY", KEY)
    error = json.dumps({"error": {"message": said(KEY), "code": 400}}).encode()
    streams = Member(says(error))
    whole = Member(answers(200, {"headers": {"Authorization": f"Bearer {KEY}"}}))
    for member in (streams, whole):
        async with listening(member):
            others = [member.upstream(key_env="VENDOR_KEY", **LOOKED_AT)]
            async with gateway(others=others) as running:
                assert_clean(await running.post("hi", stream=member is streams))


async def test_one_servers_key_does_not_come_back_in_anothers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_1", KEY)
    first, second = Member(answers(400, {"error": {"message": said(KEY)}})), Member(answers(200, {}))
    async with listening(first, second):
        others = [first.upstream(name="a"), second.upstream(name="b", key_env="KEY_1", priority=1)]
        async with gateway(others=others) as running:
            answer = await running.post("hi")
            assert (answer.status, answer.headers.get("x-served-by")) == (400, None)
            assert_clean(answer)


async def test_the_words_of_a_server_without_a_key_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_KEY", "EMPTY")
    member = Member(answers(200, {"text": "An EMPTY answer"}))
    upstream = {"key_env": "NO_KEY", **LOOKED_AT}
    async with listening(member), gateway(others=[member.upstream(**upstream)]) as running:
        assert (await running.post("hi")).json == {"text": "An EMPTY answer"}


async def test_a_key_does_not_stand_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("VENDOR_KEY", KEY)
    member = Member(answers(200, {}))
    logger = logging.getLogger("ray.serve")
    async with listening(member), gateway(others=[member.upstream(key_env="VENDOR_KEY", **LOOKED_AT)]):
        logger.warning("refused: %s", {"authorization": f"Bearer {KEY}"})
        try:
            raise ValueError(f"bad header {KEY}")
        except ValueError:
            logger.exception("failed")
    assert "refused: " in caplog.text
    assert "ValueError: bad header [redacted]" in caplog.text
    assert KEY not in caplog.text


def assert_clean(answer: Any) -> None:
    shown = f"{answer.body!r} {dict(answer.headers)}"
    for form in FORMS.values():
        assert form not in shown
    assert "[redacted]" in shown
