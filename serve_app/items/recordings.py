"""Recordings as work and as cache keys."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from serve_app.items.shape import encoded
from serve_app.media.forms import Form
from serve_app.openai.leniency import is_true

CHUNK_S = 30.0
"""vLLM cuts a recording into pieces of this length (Whisper's window); each is a sequence of its own."""

TOKENS_PER_S = 50.0
"""Rate of Whisper's encoder: 1,500 positions for 30 s."""

NOT_SHAPING = frozenset({"model", "user"})
SAMPLES = "temperature"


def recording_key(
    path: str, form: Form, *, tenant: str, model: str, fingerprint: str, by: Collection[str]
) -> bytes | None:
    """A key made of the recording's content and every field of the form; ``None`` for a streamed answer, or a
    sample. ``by``: names of fields that identify a tenant's own users, whose answers are kept apart."""
    fields = sorted((name, value) for name, value in form.fields if name not in NOT_SHAPING)
    if is_true(form.get("stream")) or _is_sample(form):
        return None
    what = encoded([path, tenant, model, fingerprint, fields, {name: form.get(name) for name in by}])
    return hashlib.sha256(what + form.digest).digest()


def _is_sample(form: Form) -> bool:
    temperature = form.get(SAMPLES)
    if temperature is None or form.get("seed") is not None:
        return False
    try:
        return float(temperature) > 0
    except ValueError:
        return True
