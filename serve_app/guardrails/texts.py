"""The texts of a request or answer, in one form for every dialect, and the same with other texts.

A text is every string that is not known to be something else, so that a field that is new here is seen. What
a name says about its value holds at its place only: `user` is an option of a request, and within the schema
of a tool it may be any property.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from serve_app.guardrails.contract import Text
from serve_app.guardrails.escapes import unescaped

NO_TEXT = frozenset(
    {
        *("model", "role", "type", "id", "object", "index", "status", "created", "format", "detail"),
        *("encoding_format", "media_type", "call_id", "tool_call_id", "tool_use_id"),
        *("finish_reason", "stop_reason", "system_fingerprint", "service_tier", "usage", "metrics"),
        *("stream", "stream_options", "user", "safety_identifier", "cache_salt", "priority", "request_id"),
        *("reasoning_effort", "truncation_side", "signature", "encrypted_content", "strict"),
    }
)
"""Options of a request, a message, a part or a call, as long as their values look like names: others are
texts. A participant's `name` is always one."""

NAME = re.compile(r"(?!.*(?<![0-9A-Za-z])\d(?:[^A-Za-z]?\d){8})@?[\w.:/|+=\-]{1,256}", re.ASCII)
"""No spaces, no address, and no nine digits in a row that stand alone: a phone or card number may."""
OPAQUE = frozenset({"signature", "encrypted_content", "cache_salt"})
BASE64 = re.compile(r"[A-Za-z0-9+/=_\-]*")

CLOSED = {
    "role": frozenset({"system", "developer", "user", "assistant", "tool", "function"}),
    "reasoning_effort": frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"}),
    "tool_choice": frozenset({"none", "auto", "required", "any"}),
}
"""Options that a chat template may write into the prompt: another value is a text."""

MEDIA = frozenset(
    {
        *("image_url", "image", "input_image", "image_embeds", "image_pil", "input_audio", "audio_url"),
        *("audio", "audio_embeds", "video_url", "video", "input_video", "input_file", "file", "file_id"),
        *("prompt_embeds", "file_data"),
    }
)
"""Types of content parts, and their fields, that hold no text."""

TYPES = MEDIA | {
    *("object", "string", "number", "integer", "boolean", "array", "null"),
    *("text", "input_text", "output_text", "function", "custom", "json_schema", "json_object"),
}
"""Values of `type` that are a text nowhere: those of JSON schemas, parts and tools."""

KEYWORDS = frozenset(
    {
        *("type", "properties", "required", "items", "enum", "const", "default", "description", "title"),
        *("additionalProperties", "anyOf", "oneOf", "allOf", "not", "format", "pattern", "examples"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "nullable"),
        *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "prefixItems", "contains"),
        *("minProperties", "maxProperties", "propertyNames", "patternProperties", "dependentRequired"),
        *("if", "then", "else", "strict", "deprecated", "readOnly", "writeOnly", "discriminator"),
        *("$ref", "$defs", "$schema", "$id", "definitions", "json", "regex", "choice", "grammar"),
        *("text", "content", "id", "url", "name", "source", "metadata", "enable_thinking", "thinking"),
    }
)
"""Keys that say nothing of their own: of JSON schemas, documents and templates."""

TOKENS = frozenset({"prompt", "input", "tokens", "prompt_token_ids", "token_ids"})
REASONING = frozenset({"reasoning", "reasoning_content", "thinking"})
SHORT_NUMBER = 6
"""Digits of a key that are a token's id, or a place in a list, and no phone number."""


class Place(Enum):
    """What a name says about its value. All but ``FORM`` hold for what is within, too."""

    FORM = "request, message, part, call"
    OPTION = "option"
    NEW = "unknown field"
    DATA = "documents"
    SCHEMA = "schema, arguments of a template or of a call"


SHOWN = frozenset({Place.DATA, Place.SCHEMA})
"""Where a model may be shown the keys as well."""

PLACES: Mapping[str, Place] = {
    **dict.fromkeys(NO_TEXT, Place.OPTION),
    **dict.fromkeys(
        (
            *("messages", "content", "system", "prompt", "input", "output", "document", "source"),
            *("tools", "functions", "tool_choice", "allowed_tools", "response_format", "json_schema"),
            *("tool_calls", "function_call", "function", "custom", "choices", "message", "delta"),
        ),
        Place.FORM,
    ),
    **dict.fromkeys(
        (
            *("parameters", "input_schema", "output_schema", "schema", "chat_template_kwargs", "metadata"),
            *("guided_json", "structured_outputs", "arguments"),
        ),
        Place.SCHEMA,
    ),
    "documents": Place.DATA,
}


class Texts:
    """The texts of ``value``, which is JSON. ``unseen`` names what is in it that has no text to look at;
    ``None`` if all is seen. ``keys``: keys of objects count, too; no model writes those of an answer."""

    def __init__(self, value: Any, *, keys: bool = True) -> None:
        self.found: list[Text] = []
        self.unseen: str | None = None
        self._has_keys = keys
        self._places: list[tuple[Any, Any, bool]] = []
        """Holder, its key, and whether the key itself is the text."""
        self._walk(value, None, Place.FORM)

    def put(self, texts: Sequence[str]) -> None:
        """Write other texts into the value itself. A new key that is taken gets a number."""
        renamed: dict[int, tuple[dict[str, Any], dict[str, str]]] = {}
        for (holder, key, is_key), text in zip(self._places, texts, strict=True):
            if not is_key:
                holder[key] = text
            elif text != key:
                renamed.setdefault(id(holder), (holder, {}))[1][key] = text
        for holder, names in renamed.values():
            _rename(holder, names)

    def _walk(self, value: Any, role: str | None, place: Place) -> None:
        if isinstance(value, dict):
            given = value.get("role") if place is Place.FORM else None
            role = given if isinstance(given, str) else role
            is_media = place is not Place.SCHEMA and self._is_media(value)
            for key, each in value.items():
                if self._has_keys and _is_text_key(key, place):
                    self._add(key, "text", role, (value, key, True))
                if place is Place.SCHEMA or not self._has_no_text(key, each, is_media):
                    self._take(value, key, each, role, place)
        elif isinstance(value, list):
            for index, each in enumerate(value):
                if not isinstance(each, str):
                    self._walk(each, role, place)
                elif each and not (place is Place.OPTION and NAME.fullmatch(each)):
                    self._add(each, "text", role, (value, index, False))

    def _is_media(self, value: Mapping[str, Any]) -> bool:
        kind = value.get("type")
        source = value.get("source")
        is_source = isinstance(source, dict) and source.get("type") in ("base64", "url", "file")
        if is_source or (isinstance(kind, str) and kind in MEDIA):
            self.unseen = f"a part of type `{kind}`"
            return True
        return False

    def _has_no_text(self, key: str, value: Any, is_media: bool) -> bool:
        if key in MEDIA and value:
            self.unseen = f"`{key}`"
            return True
        if key in TOKENS and _are_tokens(value):
            self.unseen = f"token ids in `{key}`"
            return set(map(type, value)) == {int}
        return is_media and key in ("source", "data")

    def _take(self, holder: Any, key: str, value: Any, role: str | None, place: Place) -> None:
        if isinstance(value, str):
            if value and not _is_name(key, value, place):
                kind = _kind_of(key) if place is Place.FORM else "text"
                self._add(value, kind, role, (holder, key, False))
        elif isinstance(value, dict | list) and not (key == "type" and _are_types(value)):
            self._walk(value, role, _within(place, key, value))

    def _add(self, text: str, kind: str, role: str | None, place: tuple[Any, Any, bool]) -> None:
        shown = unescaped(text) if kind == "arguments" else text
        self.found.append(Text(shown, kind, role))
        self._places.append(place)


def with_texts(value: Any, texts: Sequence[str], *, keys: bool = True) -> Any:
    """The same with other texts, as found by :class:`Texts`."""
    changed = copy.deepcopy(value)
    Texts(changed, keys=keys).put(texts)
    return changed


def _within(place: Place, key: str, value: Any) -> Place:
    if place is not Place.FORM:
        return place
    if key == "input" and isinstance(value, dict):  # of a call
        return Place.SCHEMA
    return PLACES.get(key, Place.NEW)


def _is_name(key: str, value: str, place: Place) -> bool:
    """Whether a string is known to be no text."""
    if key == "type" and value in TYPES:
        return True
    if place is Place.FORM:
        known = CLOSED.get(key)
        if known is not None:
            return value in known
        if key not in NO_TEXT:
            return False
    elif place is not Place.OPTION:
        return False
    return (BASE64 if key in OPAQUE else NAME).fullmatch(value) is not None


def _is_text_key(key: str, place: Place) -> bool:
    if place in SHOWN:
        return key not in KEYWORDS and not (len(key) <= SHORT_NUMBER and key.isdecimal())
    return not (key.isascii() and key.isidentifier()) and not (len(key) <= SHORT_NUMBER and key.isdecimal())


def _are_types(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) and each in TYPES for each in value)


def _rename(holder: dict[str, Any], names: Mapping[str, str]) -> None:
    """Keys in their order under other names."""
    items = list(holder.items())
    taken = {key for key, _ in items if key not in names}
    holder.clear()
    for key, value in items:
        name, number = names.get(key, key), 1
        while key in names and name in taken:
            number += 1
            name = f"{names[key]} {number}"
        taken.add(name)
        holder[name] = value


def _kind_of(key: str) -> str:
    if key == "arguments":
        return "arguments"
    return "reasoning" if key in REASONING else "text"


def _are_tokens(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, int) or (isinstance(first, list) and bool(first) and isinstance(first[0], int))
