"""JSON schemas of bodies. For requests they describe only the fields that the gateway reads; engines judge
all others."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WORD: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": 1}
NUMBER: Schema = {"type": "number"}
ANYTHING: Schema = {}
OBJECT: Schema = {"type": "object"}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {"type": "object", "required": list(required), "properties": required | (optional or {})}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(of: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": of} | ({"minItems": least} if least else {})


RESPONSES_REQUEST: Schema = _object(
    {"model": WORD},
    {
        "input": {"anyOf": [TEXT, _list(OBJECT)]},
        "instructions": _or_null(TEXT),
        "previous_response_id": _or_null(TEXT),
        "conversation": {},
        "stream": {},
        "store": {},
        "background": {},
        "tools": {},
    },
)
RESPONSE: Schema = _object(
    {
        "id": TEXT,
        "object": {"const": "response"},
        "status": TEXT,
        "model": TEXT,
        "output": _list(OBJECT),
    }
)
ITEM_LIST: Schema = _object(
    {"object": {"const": "list"}, "data": _list(OBJECT), "has_more": {"type": "boolean"}}
)

EVENTS: Schema = {
    "type": "string",
    "description": "Server-sent events, one chunk each. After the first byte, an error is the last event.",
}
ERROR: Schema = _object(
    {
        "error": _object(
            {"message": TEXT, "type": TEXT},
            {"param": _or_null(TEXT), "code": {"type": ["string", "integer", "null"]}},
        )
    },
    {"type": TEXT},
)
STATUS: Schema = _object({"status": TEXT})
HEALTH: Schema = _object({"status": TEXT}, {"cache": {"enum": ["starting", "ok", "failing"]}})
VERSION: Schema = _object({"version": TEXT})
NAMES_MODEL: Schema = _object({"model": WORD})

_GENERATION: dict[str, Schema] = {
    "stream": _or_null({"type": "boolean"}),
    "stream_options": _or_null(_object({}, {"include_usage": _or_null({"type": "boolean"})})),
    "n": _or_null(COUNT),
    "max_tokens": _or_null({"type": "integer", "minimum": 0}),
    "max_completion_tokens": _or_null(COUNT),
    "temperature": _or_null({"type": "number", "minimum": 0}),
    "top_p": _or_null({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
    "stop": {"anyOf": [TEXT, _list(TEXT), {"type": "null"}]},
}
_MESSAGE = _object({"role": WORD}, {"content": {"anyOf": [TEXT, _list(OBJECT), {"type": "null"}]}})
CHAT_REQUEST: Schema = _object({"model": WORD, "messages": _list(_MESSAGE, least=1)}, _GENERATION)
COMPLETION_REQUEST: Schema = _object(
    {"model": WORD, "prompt": {"anyOf": [TEXT, _list(TEXT, least=1), _list({"type": "integer"}, least=1)]}},
    _GENERATION,
)
EMBEDDING_REQUEST: Schema = _object(
    {"model": WORD, "input": {"anyOf": [WORD, _list(WORD, least=1)]}},
    {"encoding_format": _or_null({"enum": ["float", "base64"]}), "dimensions": _or_null(COUNT)},
)

_TURN = _object(
    {"role": {"enum": ["user", "assistant", "system"]}, "content": {"anyOf": [TEXT, _list(OBJECT)]}}
)
_PROMPT: dict[str, Schema] = {
    "system": {"anyOf": [TEXT, _list(OBJECT), {"type": "null"}]},
    "tools": _or_null(_list(_object({"name": WORD}))),
    "tool_choice": _or_null(_object({"type": {"enum": ["auto", "any", "tool", "none"]}})),
    "thinking": _or_null(_object({"type": {"enum": ["enabled", "disabled", "adaptive"]}})),
}
COUNT_TOKENS_REQUEST: Schema = _object({"model": WORD, "messages": _list(_TURN, least=1)}, _PROMPT)
MESSAGES_REQUEST: Schema = _object(
    {"model": WORD, "messages": _list(_TURN, least=1), "max_tokens": COUNT},
    {
        **_PROMPT,
        "stream": _GENERATION["stream"],
        "stop_sequences": _or_null(_list(WORD)),
        "temperature": _GENERATION["temperature"],
        "top_p": _GENERATION["top_p"],
        "top_k": _or_null({"type": "integer", "minimum": 0}),
        "metadata": _or_null(_object({}, {"user_id": _or_null(TEXT)})),
    },
)
TOKEN_COUNT: Schema = _object({"input_tokens": NUMBER})
MESSAGE: Schema = _object(
    {
        "id": TEXT,
        "type": {"const": "message"},
        "role": {"const": "assistant"},
        "model": TEXT,
        "content": _list(_object({"type": TEXT}), least=1),
        "stop_reason": _or_null(TEXT),
        "usage": _object({"input_tokens": NUMBER, "output_tokens": NUMBER}),
    }
)

_USAGE = _or_null(_object({"prompt_tokens": NUMBER, "total_tokens": NUMBER}))
_ANSWER: dict[str, Schema] = {"id": TEXT, "object": TEXT, "created": NUMBER, "model": TEXT}
CHAT_ANSWER: Schema = _object({**_ANSWER, "choices": _list(_object({"message": OBJECT}))}, {"usage": _USAGE})
TEXT_ANSWER: Schema = _object({**_ANSWER, "choices": _list(_object({"text": TEXT}))}, {"usage": _USAGE})
_VECTOR = _object({"index": NUMBER, "embedding": {"anyOf": [_list(NUMBER), TEXT]}})
EMBEDDINGS: Schema = _object({"object": TEXT, "model": TEXT, "data": _list(_VECTOR)}, {"usage": _USAGE})
MODEL: Schema = _object({"id": TEXT, "object": TEXT, "created": NUMBER, "owned_by": TEXT})
MODELS: Schema = _object({"object": TEXT, "data": _list(MODEL)})
FEEDBACK: Schema = _object(
    {"entry": {"type": "string", "format": "uuid"}, "right": {"type": "boolean"}}, {"text": _or_null(TEXT)}
)
VERDICT: Schema = _object(
    {"experiment": TEXT, "arm": TEXT, "verdict": {"enum": ["worse", "not worse", "undecided"]}}
)

SAID: Schema = _object(
    {"request_id": {"type": "string", "minLength": 1, "maxLength": 200}},
    {
        "score": _or_null({"type": "number", "minimum": 0, "maximum": 1}),
        "label": _or_null({"type": "string", "maxLength": 64}),
        "text": _or_null(TEXT),
        "correction": _or_null(TEXT),
        "messages": _or_null(_list(OBJECT)),
    },
)

RECORDING = {
    "type": "object",
    "required": ["file", "model"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "model": {"type": "string", "minLength": 1},
        "language": {"type": "string"},
        "response_format": {"type": "string"},
        "stream": {"type": "boolean"},
    },
}
