"""vLLM's `/v1/realtime`: a WebSocket with the events of vLLM 0.29, and words instead of a model's text."""

from __future__ import annotations

import base64
import json
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from sim_engine.connection import Connection
from sim_engine.settings import SimSettings

WORD_SAMPLES = 1600
"""A word for each tenth of a second of audio."""

RATE = 16_000
MAX_MESSAGE_BYTES = 1 << 24


class RealtimeConnection:
    """One client. ``heard`` is the audio of each utterance, ``events`` the types of what came.
    ``finishes``: whether the text is completed after a final commit."""

    def __init__(self, client: Connection, headers: dict[str, str], settings: SimSettings) -> None:
        self.headers = headers
        self.heard: list[bytes] = []
        self.events: list[str] = []
        self.finishes = True
        self._client = client
        self._settings = settings
        self._protocol = ServerProtocol(max_size=MAX_MESSAGE_BYTES)
        self._pending: list[bytes] = []
        self._is_validated = self._is_generating = False
        self._words = 0
        client.switch(self._feed)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._feed(f"GET /v1/realtime HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))

    def say(self, **event: Any) -> None:
        """Send an event of the test's own."""
        self._protocol.send_text(json.dumps(event).encode())
        self._flush()

    @property
    def is_closed(self) -> bool:
        return self._client.closed.done()

    def close(self, code: int = 1011) -> None:
        self._protocol.send_close(code, "simulated")
        self._flush()

    def _feed(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._protocol.send_response(self._protocol.accept(event))
                self.say(type="session.created", id="sess-sim", created=0)
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._take(json.loads(bytes(event.data)))
            elif isinstance(event, Frame) and event.opcode is Opcode.CLOSE:
                self._flush()
                self._client.close()
        self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._client.write(data)

    def _take(self, event: dict[str, Any]) -> None:
        self.events.append(event["type"])
        match event["type"]:
            case "session.update":
                self._is_validated = event.get("model") == self._settings.model
                if not self._is_validated:
                    self._fail(f"The model `{event.get('model')}` does not exist.", "model_not_found")
            case "input_audio_buffer.append":
                self._pending.append(base64.b64decode(event["audio"], validate=True))
                self._transcribe()
            case "input_audio_buffer.commit" if not self._is_validated:
                self._fail("Model not validated.", "model_not_validated")
            case "input_audio_buffer.commit" if event.get("final"):
                self.finish()
            case "input_audio_buffer.commit":
                self._is_generating = True
                self.heard.append(b"")
                self._transcribe()
            case kind:
                self._fail(f"Unknown event type: {kind}", "unknown_event")

    def _transcribe(self) -> None:
        if not self._is_generating:
            return
        self.heard[-1] += b"".join(self._pending)
        self._pending = []
        while (self._words + 1) * WORD_SAMPLES * 2 <= len(self.heard[-1]):
            self._words += 1
            self.say(type="transcription.delta", delta=f"w{self._words} ")

    def finish(self) -> None:
        """Complete the text of what was heard."""
        if not self._is_generating or not self.finishes:
            return
        text = "".join(f"w{number + 1} " for number in range(self._words))
        tokens = len(self.heard[-1]) // (2 * RATE // 10)
        usage = {
            "prompt_tokens": tokens,
            "completion_tokens": self._words,
            "total_tokens": tokens + self._words,
        }
        self._is_generating, self._words, self._pending = False, 0, []
        self.say(type="transcription.done", text=text, usage=usage)

    def _fail(self, message: str, code: str) -> None:
        self.say(type="error", error=message, code=code)
