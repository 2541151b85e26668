"""Uploaded recordings."""

from __future__ import annotations

import asyncio
import contextlib
import email
import hashlib
import io
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from email import policy
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import FormData, web
from local_cache import local_cache
from scripted_member import Member, Seen, listening
from support.full_disk import small_disk
from support.gateway import MODEL, Answered, Running, gateway
from support.graph import eventually
from support.meter import Meter
from support.recordings import wav

from deployments.gateway.request.spool import BLOCK, MOST_HELD
from serve_app.settings.paths import AUDIO

TRANSCRIPTIONS, TRANSLATIONS = AUDIO


def speech(seconds: float = 1.0, sample: int = 0) -> bytes:
    return wav(seconds, sample=sample)


async def whisper(request: web.Request) -> web.StreamResponse:
    """As vLLM answers: it says what it was asked."""
    head = f"content-type: {request.headers['content-type']}\r\n\r\n"
    message = email.message_from_bytes(head.encode() + await request.read(), policy=policy.HTTP)
    parts = {part.get_param("name", header="content-disposition"): part for part in message.iter_parts()}
    recording = parts.pop("file")
    fields = {name: part.get_content().rstrip("\r\n") for name, part in parts.items()}
    size = len(recording.get_payload(decode=True))
    text = f"{size} bytes of {recording.get_filename()} by {fields['model']}"
    if fields.get("stream") in {"true", "yes", "TRUE"}:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await response.write(b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n')
        return response
    if fields.get("response_format") == "srt":
        return web.Response(text="1\n00:00 --> 00:01\nhi\n")
    return web.json_response({"text": text, "usage": {"type": "duration", "seconds": 1}})


class Streaming(Member):
    """Its answer reads the upload, or not."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return await super().handle(request)
        self.seen.append(Seen(request.path, {}, b""))
        return await self.answer(request)


@asynccontextmanager
async def hearing(
    folder: Path | None = None, by: Sequence[str] = (), member: Member | None = None, **args: Any
) -> AsyncIterator[tuple[Running, Member]]:
    member = member or Member(whisper)
    async with listening(member):
        others = [member.upstream(kind="vllm", model="whisper-tiny", paths=list(AUDIO))]
        if folder is None:
            async with gateway(others=others, **args) as running:
                yield running, member
            return
        async with (
            local_cache(folder, partition_by=by) as cache,
            gateway(others=others, handles=cache.handles, **cache.args, **args) as running,
        ):
            yield running, member


async def upload(
    running: Running,
    data: bytes,
    path: str = TRANSCRIPTIONS,
    headers: dict[str, str] | None = None,
    **fields: str,
) -> Answered:
    form = FormData()
    form.add_field("file", io.BytesIO(data), filename="talk.wav", content_type="audio/wav")
    for name, value in {"model": MODEL, **fields}.items():
        form.add_field(name, value)
    async with running.http.post(path, data=form, headers=headers) as response:
        return Answered(response.status, response.headers, await response.read())


async def test_a_recording_reaches_the_model_under_the_name_that_it_has_there() -> None:
    async with hearing() as (running, _):
        data = speech()
        answer = await upload(running, data, language="de")
        assert answer.json["text"] == f"{len(data)} bytes of talk.wav by whisper-tiny"
        assert (answer.headers["x-cache"], answer.headers["x-served-by"]) == ("bypass", "member")
        windows = await running.get("/admin/latency")
        assert windows["audio-ms-per-s"]["count"] == 1, "milliseconds for each second of the recording"


async def test_the_same_recording_is_answered_from_the_cache(tmp_path: Path) -> None:
    async with hearing(tmp_path, tenants=["a", "b"]) as (running, member):
        mine, theirs = running.headers("a"), running.headers("b")
        asked: list[tuple[str, dict[str, Any]]] = [
            ("miss", {}),
            ("exact", {}),
            ("exact", {"user": "u"}),
            ("miss", {"language": "de"}),
            ("miss", {"response_format": "srt"}),
            ("exact", {"response_format": "srt"}),
            ("miss", {"path": TRANSLATIONS}),
            ("bypass", {"temperature": "0.7"}),
        ]
        for tier, options in asked:
            answer = await upload(running, speech(), headers=mine, **options)
            assert (answer.status, answer.headers["x-cache"]) == (200, tier), options
        assert (await upload(running, speech(sample=1), headers=mine)).headers["x-cache"] == "miss"
        assert (await upload(running, speech(), headers=theirs)).headers["x-cache"] == "miss"
        again = await upload(running, speech(), headers=mine, response_format="srt")
        assert again.headers["content-type"].startswith("text/plain")
        assert len(member.seen) == 7


async def test_users_that_the_cache_keeps_apart_share_no_recordings(tmp_path: Path) -> None:
    async with hearing(tmp_path, by=["user"]) as (running, _):
        asked = [("miss", "u"), ("exact", "u"), ("miss", "v")]
        for tier, user in asked:
            assert (await upload(running, speech(), user=user)).headers["x-cache"] == tier


@pytest.mark.parametrize("true", ["true", "yes", "TRUE"])
async def test_a_streamed_answer_is_passed_on_as_it_comes(tmp_path: Path, true: str) -> None:
    async with hearing(tmp_path) as (running, member):
        for _ in range(2):
            answer = await upload(running, speech(), stream=true)
            assert answer.events[-1] == b"[DONE]"
        assert len(member.seen) == 2


@pytest.mark.parametrize(
    ("data", "media", "code"),
    [
        (b"hello, I am no recording at all", {}, "invalid_audio"),
        (b"", {}, "invalid_audio"),
        (speech(3.0), {"max_audio_s": 2.0}, "audio_too_long"),
    ],
)
async def test_what_is_no_recording_within_the_limits_reaches_no_engine(
    data: bytes, media: dict[str, Any], code: str
) -> None:
    async with hearing(media=media) as (running, member):
        answer = await upload(running, data)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (400, code, "file")
        assert member.seen == []


async def test_an_upload_is_bounded_before_it_is_read() -> None:
    async with hearing(limits={"max_upload_bytes": 10_000, "max_body_bytes": 1024}) as (
        running,
        member,
    ):
        assert (await upload(running, speech(0.5))).status == 200
        assert (await upload(running, speech(2.0))).status == 413
        assert len(member.seen) == 1


@pytest.mark.parametrize("bound", ["max_uploads", "max_uploads_per_tenant"])
async def test_no_more_uploads_at_once_than_allowed(bound: str) -> None:
    async with hearing(media={bound: 1}, tenants=["a", "b"]) as (running, _):
        mine, theirs = running.headers("a"), running.headers("b")
        head = (
            f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            f"authorization: {mine['authorization']}\r\n"
            "content-type: multipart/form-data; boundary=b\r\ncontent-length: 99\r\n\r\n"
        )
        host, port = running.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(head.encode())
            await writer.drain()

            async def refused() -> bool:
                return bool((await upload(running, speech(), headers=mine)).status == 429)

            assert await eventually(refused, within_s=5)
            other = await upload(running, speech(), headers=theirs)
            assert other.status == (429 if bound == "max_uploads" else 200)
            if other.status == 429:
                assert f"media.{bound})" in other.error["message"]
        finally:
            writer.close()
            await writer.wait_closed()


async def test_json_is_no_upload_and_a_missing_model_is_named() -> None:
    async with hearing() as (running, _):
        wrong = await running.send({"model": MODEL}, TRANSCRIPTIONS)
        assert (wrong.status, wrong.error["param"]) == (415, "content-type")
        unnamed = await upload(running, speech(), model="")
        assert (unnamed.status, unnamed.error["param"]) == (400, "model")
        unknown = await upload(running, speech(), model="nothing")
        assert unknown.status == 404


async def test_how_long_clients_wait_for_each_second_is_a_metric(tmp_path: Path) -> None:
    meter = Meter()
    async with hearing(tmp_path, meter=meter) as (running, _):
        for _ in range(2):
            assert (await upload(running, speech(2.0))).status == 200
        assert (await upload(running, b"no recording")).status == 400

        async def all_finished() -> bool:
            return sum(meter.values.get("promptly_requests", {}).values()) == 3

        assert await eventually(all_finished, within_s=10)
    factors = meter.observed["promptly_real_time_factor"]
    assert {outcome: len(values) for (_, outcome), values in factors.items()} == {"answered": 1, "cached": 1}
    waited = meter.observed["promptly_e2e_seconds"]
    assert all(factors[labels] == pytest.approx([each / 2 for each in waited[labels]]) for labels in factors)


LONG_S = 250.0
"""Of a recording of 4 MB, which lies in a file while it is answered."""


def spooled(folder: Path) -> dict[str, Any]:
    return {"media": {"upload_folder": str(folder)}}


async def test_a_long_recording_reaches_the_model_whole_and_is_known_again(tmp_path: Path) -> None:
    folder = tmp_path / "uploads"
    folder.mkdir()
    async with hearing(tmp_path / "cache", **spooled(folder)) as (running, member):
        data = speech(LONG_S, sample=77)
        for tier in ("miss", "exact"):
            answer = await upload(running, data, language="de")
            assert answer.json["text"] == f"{len(data)} bytes of talk.wav by whisper-tiny"
            assert answer.headers["x-cache"] == tier
        assert len(member.seen) == 1
        assert (await upload(running, data[:-1] + b"x")).headers["x-cache"] == "miss"
        windows = await running.get("/admin/latency")
        assert windows["audio-ms-per-s"]["count"] == 2
        assert list(folder.iterdir()) == []


async def test_the_bytes_of_a_long_recording_arrive_in_their_order(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def hash_it(request: web.Request) -> web.Response:
        seen.append(hashlib.sha256(_file_of(await request.read())).digest())
        return web.json_response({"text": "x"})

    data = speech(LONG_S) + bytes(range(256)) * 9000
    async with hearing(member=Member(hash_it), **spooled(tmp_path)) as (running, _):
        assert (await upload(running, data)).status == 200
    assert seen == [hashlib.sha256(data).digest()]


def _file_of(body: bytes) -> bytes:
    begin = body.index(b"\r\n\r\n", body.index(b'name="file"')) + 4
    return body[begin : body.rindex(b"\r\n--")]


async def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    """24 MiB pass through client, gateway and member, all in this process; none of them holds them."""
    size = 0

    async def count(request: web.Request) -> web.Response:
        nonlocal size
        async for part in request.content.iter_any():
            size += len(part)
        return web.json_response({"text": "x"})

    head = speech(1.0)
    pieces = 24 * 16

    async def sent() -> AsyncIterator[bytes]:
        yield b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\n' + MODEL.encode()
        yield b'\r\n--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n' + head
        for _ in range(pieces):
            yield bytes(1 << 16)
        yield b"\r\n--b--\r\n"

    headers = {"content-type": "multipart/form-data; boundary=b"}
    limits = {"max_held_bytes_per_tenant": MOST_HELD + 1024}
    async with hearing(member=Streaming(count), limits=limits, **spooled(tmp_path)) as (running, _):
        await upload(running, head)  # what is made once is made
        tracemalloc.start()
        try:
            async with running.http.post(TRANSCRIPTIONS, data=sent(), headers=headers) as response:
                assert response.status == 200, await response.text()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert size > pieces << 16
    assert peak < 8 << 20


async def test_what_uploads_hold_in_memory_counts_among_their_tenants_bytes(tmp_path: Path) -> None:
    limits = {"max_held_bytes_per_tenant": BLOCK // 2}
    async with hearing(limits=limits, **spooled(tmp_path)) as (running, member):
        refused = await upload(running, speech(LONG_S))
        assert (refused.status, refused.error["code"]) == (429, "over_capacity")
        assert (await upload(running, speech())).status == 200
        assert len(member.seen) == 1


async def test_a_folder_that_cannot_be_written_is_told_and_short_recordings_go_on(tmp_path: Path) -> None:
    async with hearing(**spooled(tmp_path / "nowhere")) as (running, member):
        refused = await upload(running, speech(LONG_S))
        assert (refused.status, refused.error["code"]) == (503, "uploads_unavailable")
        assert str(tmp_path) not in refused.error["message"]
        assert (await upload(running, speech())).status == 200
        assert len(member.seen) == 1


async def test_a_full_disk_is_told_and_short_recordings_go_on(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        async with hearing(**spooled(disk)) as (running, member):
            refused = await upload(running, speech(LONG_S))
            assert (refused.status, refused.error["code"]) == (503, "uploads_unavailable")
            assert (await upload(running, speech(40.0))).status == 200, "640 kB fit again"
            assert len(member.seen) == 1


async def test_a_client_that_leaves_in_its_upload_leaves_nothing_behind(tmp_path: Path) -> None:
    async with hearing(media={"upload_folder": str(tmp_path), "max_uploads": 1}) as (running, member):
        head = (
            f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            "content-type: multipart/form-data; boundary=b\r\ncontent-length: 9000000\r\n\r\n"
            '--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
        )
        host, port = running.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.encode() + speech(LONG_S))
        await writer.drain()

        async def is_kept() -> bool:
            return bool(open_files(tmp_path))

        async def is_gone() -> bool:
            return not open_files(tmp_path)

        assert await eventually(is_kept, within_s=20)
        writer.transport.abort()
        assert await eventually(is_gone, within_s=20)
        assert (await upload(running, speech(LONG_S))).status == 200
        assert len(member.seen) == 1


def open_files(folder: Path) -> list[str]:
    """What this process has open there, with a name or without."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return [name for name in found if name.startswith(str(folder))]


async def test_a_member_that_refuses_before_the_upload_is_read_is_heard(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "too long for me"}}, status=400)

    async with hearing(member=Streaming(refuse), **spooled(tmp_path)) as (running, member):
        for _ in range(2):  # and the connection on which the rest was not sent is used no more
            answer = await upload(running, speech(1500.0))
            assert (answer.status, answer.error["message"]) == (400, "too long for me")
        assert len(member.seen) == 2


async def test_a_recording_that_breaks_members_is_refused_under_any_boundary() -> None:
    async def die(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    members = [Member(die), Member(die)]
    async with listening(*members):
        others = [
            member.upstream(kind="vllm", model="whisper-tiny", paths=list(AUDIO)) | {"name": name}
            for member, name in zip(members, ("one", "two"), strict=True)
        ]
        async with gateway(others=others) as running:

            async def is_refused() -> bool:
                return (await upload(running, speech())).status == 422

            assert await eventually(is_refused, within_s=20)
            assert all(member.seen for member in members)
            asked = sum(len(member.seen) for member in members)
            assert (await upload(running, speech())).status == 422
            assert sum(len(member.seen) for member in members) == asked


async def test_a_form_that_is_wrong_is_read_to_its_end_and_then_told() -> None:
    async with hearing() as (running, member):
        long = await upload(running, speech(600.0), prompt="x" * 70_000)
        assert (long.status, long.error["code"], long.error["param"]) == (400, "invalid_form", "prompt")
        assert member.seen == []


async def test_openais_client_transcribes() -> None:
    async with (
        hearing() as (running, _),
        openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="x") as client,
    ):
        answer = await client.audio.transcriptions.create(model=MODEL, file=("a.wav", speech()))
        assert answer.text.endswith("of a.wav by whisper-tiny")
