"""A WebSocket through Serve's proxy, the gateway and a replica's private listener."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from support.graph import Graph
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

AUDIO = base64.b64encode(bytes(4_800)).decode()


def address(graph: Graph, model: str) -> str:
    return f"{graph.url.replace('http', 'ws', 1)}/v1/realtime?model={model}"


async def test_audio_goes_to_a_replica_and_its_text_comes_back(plain: Graph) -> None:
    async with connect(address(plain, "scripted"), proxy=None) as ws:

        async def event() -> Any:
            return json.loads(await ws.recv())

        assert (await event())["type"] == "session.created"
        for _ in range(2):
            await ws.send(json.dumps({"type": "input_audio_buffer.append", "audio": AUDIO}))
            await ws.send(json.dumps({"type": "input_audio_buffer.commit"}))
            assert (await event())["type"] == "input_audio_buffer.committed"
            done = await event()
            assert done["type"] == "conversation.item.input_audio_transcription.completed"
        assert done["transcript"] == f"{2 * 3_200} bytes"  # at 16 kHz, of both
        await ws.send(json.dumps({"type": "input_audio_buffer.append", "audio": "no base64"}))
        assert (await event())["error"]["code"] == "invalid_audio"
        await ws.close()
        with pytest.raises(ConnectionClosed):
            await ws.recv()


async def test_without_a_key_there_is_no_upgrade(main: Graph) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(address(main, "scripted"), proxy=None):
            pass
    assert refused.value.response.status_code in (401, 403)  # Serve's own proxy knows no other than 403
