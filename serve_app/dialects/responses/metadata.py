"""What a client may write beside a response or a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serve_app.errors import BadRequest

MAX_METADATA = 16
MAX_NAME = 64
MAX_VALUE = 512
"""OpenAI's own bounds; lengths in characters."""


def refuse_metadata(metadata: Mapping[str, Any]) -> None:
    """Raises: BadRequest: there are too many, one is too long, or is no text."""
    if len(metadata) <= MAX_METADATA and all(
        len(name) <= MAX_NAME and isinstance(value, str) and len(value) <= MAX_VALUE
        for name, value in metadata.items()
    ):
        return
    raise BadRequest(
        f"`metadata` must be at most {MAX_METADATA} texts by name: a name has at most {MAX_NAME} characters, "
        f"a text {MAX_VALUE}.",
        param="metadata",
        code="invalid_value",
    )
