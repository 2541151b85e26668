"""Recordings, and what uploads them."""

from __future__ import annotations

import io
import wave

from aiohttp import FormData


def wav(seconds: float, *, rate: int = 8000, channels: int = 1, sample: int = 0) -> bytes:
    """A recording in which every sample is the same."""
    content = io.BytesIO()
    with wave.open(content, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(sample.to_bytes(2, "little") * int(seconds * rate) * channels)
    return content.getvalue()


def recording(model: str, *, prompt: str | None = None, filename: str = "a.wav") -> FormData:
    """A tenth of a second of silence, for ``model``."""
    form = FormData()
    form.add_field("model", model)
    if prompt is not None:
        form.add_field("prompt", prompt)
    form.add_field("file", wav(0.1), filename=filename, content_type="audio/wav")
    return form
