"""Settings of the Realtime API."""

from __future__ import annotations

from pydantic import Field

from serve_app.settings.base import Frozen


class RealtimeSettings(Frozen):
    """`/v1/realtime`: live audio over a WebSocket. Bounds per gateway; times are seconds."""

    max_sessions: int = Field(default=256, ge=1, description="WebSockets at once, at all gateways together.")
    max_sessions_per_tenant: int = Field(default=64, ge=1, description="Those of one tenant.")
    max_event_bytes: int = Field(
        default=1_048_576,
        ge=1024,
        le=16_777_216,
        description="Of one event of a client; by default 16 s of audio. A larger one closes the WebSocket.",
    )
    idle_timeout_s: float = Field(
        default=30.0,
        gt=0,
        description="A client that sends no audio for this time, or reads nothing, is told so and the "
        "WebSocket is closed. The wait for the text after a commit does not count: the time starts again "
        "at the end of the text.",
    )
    max_session_s: float = Field(default=3600.0, gt=0, description="Length of a session; OpenAI's own bound.")
    max_ahead_s: float = Field(
        default=120.0,
        gt=0,
        description="Audio of an utterance that a client may send faster than it is spoken; then it is read "
        "at the pace of speech. vLLM keeps what it has not heard in memory, without a bound.",
    )
