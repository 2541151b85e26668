"""The texts of a request or answer, in one form for every dialect, and the same with other texts.

A text is every string that is not known to be something else, so that a field that is new here is seen.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from serve_app.guardrails.contract import Text

NO_TEXT = frozenset(
    {
        *("model", "role", "type", "id", "object", "index", "status", "created", "format", "detail"),
        *("encoding_format", "response_format", "media_type", "call_id", "tool_call_id", "tool_use_id"),
        *("finish_reason", "stop_reason", "system_fingerprint", "service_tier", "usage", "metrics"),
        *("stream", "stream_options", "user", "safety_identifier", "cache_salt", "priority", "request_id"),
        *("tool_choice", "reasoning_effort", "truncation_side", "signature", "encrypted_content", "strict"),
    }
)
"""Fields that hold names and options. A participant's `name` is a text."""

MEDIA = frozenset(
    {
        *("image_url", "image", "input_image", "image_embeds", "image_pil", "input_audio", "audio_url"),
        *("audio", "audio_embeds", "video_url", "video", "input_video", "input_file", "file", "file_id"),
        *("prompt_embeds", "file_data"),
    }
)
"""Types of content parts, and their fields, that hold no text."""

TOKENS = frozenset({"prompt", "input", "tokens", "prompt_token_ids", "token_ids"})
REASONING = frozenset({"reasoning", "reasoning_content", "thinking"})


class Texts:
    """The texts of ``value``, which is JSON. ``unseen`` names what is in it that has no text to look at;
    ``None`` if all is seen."""

    def __init__(self, value: Any) -> None:
        self.found: list[Text] = []
        self.unseen: str | None = None
        self._places: list[tuple[Any, Any]] = []
        self._walk(value, None)

    def put(self, texts: Sequence[str]) -> None:
        """Write other texts into the value itself."""
        for (holder, key), text in zip(self._places, texts, strict=True):
            holder[key] = text

    def _walk(self, value: Any, role: str | None) -> None:
        if isinstance(value, dict):
            given = value.get("role")
            role = given if isinstance(given, str) else role
            if self._is_media(value):
                return
            for key, each in value.items():
                if key in MEDIA and each:
                    self.unseen = f"`{key}`"
                elif key in TOKENS and _are_tokens(each):
                    self.unseen = f"token ids in `{key}`"
                elif key not in NO_TEXT:
                    self._take(value, key, each, role, _kind_of(key))
        elif isinstance(value, list):
            for index, each in enumerate(value):
                self._take(value, index, each, role, "text")

    def _is_media(self, value: Mapping[str, Any]) -> bool:
        kind = value.get("type")
        if isinstance(kind, str) and kind in MEDIA:
            self.unseen = f"a part of type `{kind}`"
            return True
        source = value.get("source")
        if isinstance(source, dict) and source.get("type") in {"base64", "url", "file"}:
            self.unseen = f"a part of type `{kind}`"
            return True
        return False

    def _take(self, holder: Any, key: Any, value: Any, role: str | None, kind: str) -> None:
        if isinstance(value, str):
            if value:
                self.found.append(Text(value, kind, role))
                self._places.append((holder, key))
        elif isinstance(value, dict | list):
            self._walk(value, role)


def with_texts(value: Any, texts: Sequence[str]) -> Any:
    """The same with other texts, as found by :class:`Texts`."""
    changed = copy.deepcopy(value)
    Texts(changed).put(texts)
    return changed


def _kind_of(key: str) -> str:
    if key == "arguments":
        return "arguments"
    return "reasoning" if key in REASONING else "text"


def _are_tokens(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, int) or (isinstance(first, list) and bool(first) and isinstance(first[0], int))
