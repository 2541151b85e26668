"""vLLM's own `/v1/realtime`, with a scripted model, behind a replica's listener: what it takes and says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from vllm.entrypoints.speech_to_text.realtime.api_router import router

from deployments.wire.listener import PrivateListener
from deployments.wire.upstream import ConnectionRefused
from deployments.wire.websocket import MemberSocket, open_socket
from serve_app.errors import EngineError, UpstreamFailed
from serve_app.fleet import EngineReport, EngineState
from serve_app.realtime.events import read_engine_event, read_event, to_json
from serve_app.realtime.transcription import TranscriptionSession


class ScriptedServing:
    """What vLLM's connection asks of its engine: a word for each piece of audio."""

    def __init__(self) -> None:
        self.heard: list[np.ndarray] = []
        self.model_cls = SimpleNamespace(realtime_max_tokens=16)
        self.engine_client = self

    def _is_model_supported(self, model: str | None) -> bool:
        return model == "m"

    def create_error_response(self, message: str, **_: Any) -> Any:
        return SimpleNamespace(error=SimpleNamespace(message=message))

    def transcribe_realtime(self, audio: Any, tokens: Any) -> Any:
        return audio

    async def generate(self, prompt: Any, sampling_params: Any, request_id: str) -> AsyncIterator[Any]:
        async for piece in prompt:
            self.heard.append(piece)
            said = SimpleNamespace(text=f"w{len(self.heard)} ", token_ids=[1])
            yield SimpleNamespace(outputs=[said], prompt_token_ids=[1, 2])


@pytest.fixture
def serving() -> ScriptedServing:
    return ScriptedServing()


@pytest.fixture
async def listener(serving: ScriptedServing) -> AsyncIterator[PrivateListener]:
    app = FastAPI()
    app.include_router(router)
    app.state.openai_serving_realtime = serving
    listener = PrivateListener(app, "127.0.0.1")
    listener.start()
    yield listener
    await listener.stop(0.0)


def report(listener: PrivateListener, **changed: Any) -> EngineReport:
    address = listener.address
    of = {"url": address.url, "secret": address.secret, "socket": address.socket, **changed}
    return EngineReport(replica_id="r", model="m", headers={}, state=EngineState.READY, **of)


async def opened(to: EngineReport, path: str = "/v1/realtime") -> MemberSocket:
    return await open_socket(
        to, path, {"x-request-id": "r"}, max_message_bytes=1 << 20, answer_timeout_s=10.0
    )


async def until(socket: MemberSocket, kind: str) -> Any:
    async with asyncio.timeout(10):
        while (event := read_engine_event(str(await socket.receive()))).type != kind:
            pass
    return event


async def send(socket: MemberSocket, session: TranscriptionSession, **event: Any) -> None:
    for message in session.client(read_event(json.dumps(event))).to_engine:
        await socket.send(message)


@pytest.mark.parametrize("unix", [True, False])
async def test_what_we_send_is_what_vllm_takes(
    listener: PrivateListener, serving: ScriptedServing, unix: bool
) -> None:
    socket = await opened(report(listener, **({} if unix else {"socket": ""})))
    session = TranscriptionSession("m", lambda kind: kind)
    await until(socket, "session.created")
    await socket.send(to_json({"type": "session.update", "model": "m"}))
    for utterance in (1, 2):
        await send(socket, session, type="input_audio_buffer.append", audio="AAAA" * 1600)
        assert (await until(socket, "transcription.delta")).delta.startswith("w")
        await send(socket, session, type="input_audio_buffer.commit")
        done = await until(socket, "transcription.done")
        assert done.usage.completion_tokens == len(done.text.split()) > 0
        assert session.engine(done, "").to_client, utterance
    assert sum(map(len, serving.heard)) == 2 * 1600
    await socket.close()


async def test_its_errors_are_read(listener: PrivateListener) -> None:
    socket = await opened(report(listener))
    await until(socket, "session.created")
    await socket.send(to_json({"type": "session.update", "model": "other"}))
    with pytest.raises(EngineError) as failed:
        await until(socket, "never")
    assert failed.value.details.code == "model_not_found"
    await socket.close()


async def test_without_the_secret_or_the_path_there_is_no_websocket(listener: PrivateListener) -> None:
    for wrong in (
        {"secret": "guess"},
        {"secret": "guess", "socket": ""},
        {"url": "http://127.0.0.1:1", "socket": ""},
    ):
        with pytest.raises(ConnectionRefused):
            await opened(report(listener, **wrong))
    with pytest.raises(UpstreamFailed, match="refused the WebSocket"):
        await opened(report(listener), "/v1/other")
