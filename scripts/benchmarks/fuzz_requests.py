"""Requests with errors, made from valid ones of every route but the WebSocket.

Bodies, headers and bytes are changed at random; the same seed gives the same requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote

from serve_app.api.routes import FORM, JSON, ROUTES, Access

MAX_TOKENS = 4
LONG = 20_000
DEEP = 200

USER = {"role": "user", "content": "What is the capital of France?"}
STATEMENT: dict[str, Any] = {
    "name": "f",
    "description": "d",
    "parameters": {"type": "object", "properties": {}},
}
CHAT: dict[str, Any] = {"messages": [USER], "max_tokens": MAX_TOKENS, "temperature": 0}
NOBODY = "nobody"
"""A tenant that sends nothing, so that its limits and keys stop no other request."""

ITEM = {"type": "message", "role": "user", "content": "Hello"}
KEY_FIELDS = {"tenant": NOBODY, "label": "x", "priority": 5, "expires_in_s": 60.0, "networks": ["10.0.0.0/8"]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "Once upon", "max_tokens": MAX_TOKENS},
    "/v1/embeddings": {"input": ["one", "two"], "encoding_format": "float"},
    "/v1/messages": {**CHAT, "system": "Be short."},
    "/v1/messages/count_tokens": {"messages": [USER]},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 16, "store": False},
    "/v1/score": {"text_1": "a", "text_2": ["b", "c"]},
    "/v1/rerank": {"query": "a", "documents": ["b", "c"]},
    "/classify": {"input": ["a", "b"]},
    "/pooling": {"input": "a"},
    "/v2/embed": {"texts": ["a"], "input_type": "search_query", "embedding_types": ["float"]},
    "/v1/conversations": {"items": [ITEM], "metadata": {"a": "b"}},
    "/v1/conversations/{id}": {"metadata": {"a": "b"}},
    "/v1/conversations/{id}/items": {"items": [ITEM, ITEM]},
    "/v1/feedback": {"request_id": "x", "score": 0.5, "label": "good", "text": "x", "messages": [USER]},
    "/admin/keys": KEY_FIELDS,
    "/admin/keys/{id}": {"label": "y", "models": ["m"], "endpoints": ["/v1/models"], "version": 1},
    "/admin/keys/{id}/rotate": {"overlap_s": 1.0},
    "/admin/refused-users": {"tenant": NOBODY, "user": "u", "for_s": 60.0},
    "/admin/limits": {"scope": f"tenant:{NOBODY}", "requests_per_minute": 5, "money_per_day": 1.5},
    "/admin/experiments/verdict": {"experiment": "e", "arm": "a", "verdict": "worse"},
    "/v1/{rest:path}": {"prompt": "a picture", "size": "64x64"},
    "/tokenize": {"prompt": "Hello"},
    "/detokenize": {"tokens": [1, 2, 3]},
    "/admin/cache/feedback": {"entry": "00000000-0000-0000-0000-000000000000", "right": True},
    "/admin/cache/entries": {"kind": "answer", "request": {"model": "m", "messages": [USER]}, "answer": "x"},
}
GENERATED = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"}) | {
    path for path in BODIES if BODIES[path].keys() & {"input", "text_1", "query", "texts", "prompt", "tokens"}
}
"""Paths whose bodies name a model, and may have the fields below."""

FIELDS: dict[str, Sequence[Any]] = {
    "n": (1, 2, 400, 0),
    "best_of": (2, 400),
    "stream": (True, False, "yes", 1),
    "stream_options": ({"include_usage": True}, [], {"include_usage": "x"}),
    "logprobs": (True, 5, 1000, -1),
    "top_logprobs": (5, 100),
    "echo": (True,),
    "top_k": (1, -1, 0),
    "top_p": (0, 1, 2),
    "min_p": (0.1, 2),
    "stop": ("", [], [""], ["a"] * 100, None),
    "stop_token_ids": ([1], [-1], "x"),
    "seed": (1, 2**70, -1),
    "logit_bias": ({"1": 1}, {"x": 1}, {"99999999": 1}, []),
    "bad_words": ([""], ["x"], "x"),
    "min_tokens": (1, 10_000),
    "ignore_eos": (True,),
    "prompt_logprobs": (1, 10_000),
    "truncate_prompt_tokens": (1, -1, 0, 10**9),
    "priority": (1, "x"),
    "cache_salt": ("", "x", 1),
    "tools": ([{"type": "function", "function": STATEMENT}], [{}], "x", [{"name": "f", "input_schema": {}}]),
    "tool_choice": ("auto", "required", "none", {"type": "function", "function": {"name": "f"}}, {}),
    "response_format": ({"type": "json_object"}, {"type": "json_schema", "json_schema": {}}, {"type": "x"}),
    "structured_outputs": ({"regex": "("}, {"json": "{"}, {"choice": []}, [], {"grammar": "root ::="}),
    "guided_regex": ("(", "a{1000}"),
    "chat_template": ("{{ x", "{% for x in range(10) %}a{% endfor %}"),
    "chat_template_kwargs": ({"x": 1}, []),
    "documents": ([{"text": "x"}], "x"),
    "add_generation_prompt": (True, False),
    "continue_final_message": (True,),
    "prompt_embeds": ("AAAA", ["x"]),
    "prompt": ([1, 2], [[1], [2]], [], "", ["a"] * 5, [-1], [10**9]),
    "input": (
        [{"type": "item_reference", "id": "x"}],
        [[1, 2]],
        [1],
        [],
        "",
        [{"role": "user", "content": []}],
    ),
    "previous_response_id": ("resp_x",),
    "background": (True,),
    "instructions": ("x", 1),
    "system": ("x", [{"type": "text", "text": "x"}], 1),
    "thinking": ({"type": "enabled", "budget_tokens": 1},),
    "reasoning_effort": ("high", "x"),
    "metadata": ({"a": "b"}, "x"),
    "user": ("u", 1),
    "dimensions": (1, 384, -1),
    "mm_processor_kwargs": ({}, {"x": 1}),
    "kv_transfer_params": ({}, {"do_remote_decode": True}),
    "return_token_ids": (True,),
    "max_tokens": (0, -1, 5.0, "5", None, 10**9),
    "max_completion_tokens": (1, 0),
    "temperature": (2, -1, 1e308, "0", None),
    "repetition_penalty": (0, 1.1),
    "frequency_penalty": (3,),
}
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, 1e308, 2**31, 2**63, 2**70, "", " ", "x" * LONG, "\u0000",
    "é💥", "\u202e", [], {}, [None], [[]], {"": None}, {"a": {"b": {}}}, "data: [DONE]\n\n", "NaN",
)  # fmt: skip
HEADERS: dict[str, Sequence[str]] = {
    "x-request-timeout-ms": ("5000", "0", "-1", "soon", "9" * 40, "NaN", "1e3"),
    "x-priority": ("0", "9", "10", "x", ""),
    "x-cache-threshold": ("0.9", "2", "nan", "x"),
    "x-cache-ttl": ("60", "0", "-1", "inf"),
    "x-cache-tags": ("a,b", "a b", "," * 50, "x" * 100),
    "cache-control": ("no-cache", "no-store", "max-age=0", "max-age=x", "=,=,", "max-age"),
    "x-failover": ("off", "on", "x"),
    "x-model-tier": ("x", ""),
    "x-session-id": ("s", "\u00e9", "x" * 500),
    "x-request-id": ("mine", "a b", "x" * 300),
    "traceparent": ("00-" + "a" * 32 + "-" + "b" * 16 + "-01", "x", ""),
    "accept": ("text/event-stream", "*/*", "x"),
    "accept-encoding": ("gzip", "br;q=0"),
    "content-encoding": ("gzip", "x"),
    "expect": ("100-continue",),
    "origin": ("null", "https://evil.example", "http://localhost"),
    "sec-fetch-site": ("cross-site", "none"),
    "host": ("evil.example", "", "[::1", "localhost:1"),
    "x-forwarded-for": ("1.2.3.4",),
    "anthropic-version": ("2023-06-01",),
    "x-api-key": ("x",),
    "connection": ("close", "upgrade", "keep-alive, x"),
    "upgrade": ("websocket", "h2c"),
    "content-type": ("text/plain", "application/json; charset=utf-16", "multipart/form-data; boundary=x", ""),
    "range": ("bytes=0-1",),
}
METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW")
QUERIES = (
    "",
    "",
    "",
    "?",
    "?id=x",
    "?tag=",
    "?model=m&tenant=t",
    "?after=x",
    "?%00=%ff",
    "?a=1&a=2",
    "?" + "x" * 2000,
)


PLACEHOLDER = re.compile(r"\{(\w+)(?::path)?\}")
NAMES: dict[str, Sequence[str]] = {
    "rest": ("images/generations", "fine_tuning/jobs", "files", "batches/x/cancel", "x"),
    "file": ("app.js", "style.css", "../app.js", "%2e%2e%2fapp.js", "x"),
}
"""What stands for a placeholder of a path, beside names that nobody has."""

STRANGE = ("x", "0", "-1", "a" * 300, "%00", "..", "%2e%2e", "a%2fb", quote("é"), "resp_" + "0" * 48)
WAVE = b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80>\x00\x00\x00}\x00\x00\x02\x00\x10\x00"
BOUNDARY = "fuzzed"


@dataclass(frozen=True)
class Target:
    """One method of one route."""

    method: str
    path: str
    is_admin: bool
    takes: str | None
    """The media type of its body; ``None``: it has none."""


def targets() -> list[Target]:
    """Every method of every route but WebSockets, those with a body more often."""
    found = []
    for route in ROUTES:
        for method, operation in {} if route.is_socket else route.operations.items():
            takes = next(iter(operation.takes), None)
            target = Target(method, route.path, route.access is Access.ADMIN, takes)
            found += [target] * (1 if takes is None else 3)
    return found


@dataclass(frozen=True)
class Fuzzed:
    """``whole``: the request is complete, so it must be answered."""

    kind: str
    data: bytes
    whole: bool


class Bodies:
    """Bodies of requests: valid ones of a route, with some values changed."""

    def __init__(self, random: Random, models: Sequence[str]) -> None:
        self._random = random
        self._models = models

    def of(self, target: Target) -> bytes:
        random, path = self._random, target.path
        if target.takes == FORM:
            return self._form()
        if random.random() < 0.03:
            return random.choice((b"", b"[]", b"null", b"{", b'{"a":' + b"[" * DEEP, random.randbytes(64)))
        body = deepcopy(BODIES.get(path, CHAT))
        if target.is_admin or path not in GENERATED:
            for _ in range(random.choice((0, 1, 1, 2))):
                if body:
                    self._spoil_inside(body)
            return json.dumps(body).encode("utf-8", "surrogatepass")
        body["model"] = random.choice(self._models) if random.random() < 0.95 else random.choice(ODD)
        if random.random() < 0.5:
            body["stream"] = True
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            self._spoil(body)
        encoded = json.dumps(body, ensure_ascii=random.random() < 0.5)
        return encoded.encode("utf-8", "surrogatepass")

    def _form(self) -> bytes:
        """The form of a recording, with some of its fields."""
        random, parts = self._random, []
        fields = {
            "model": random.choice(self._models),
            "language": "en",
            "stream": "true",
            "temperature": "x",
        }
        for name in random.sample(list(fields), random.randint(0, len(fields))):
            parts.append(f'name="{name}"\r\n\r\n{fields[name]}'.encode())
        recording = random.choice((WAVE + bytes(3200), WAVE, b"", random.randbytes(500)))
        if random.random() < 0.9:
            parts.append(b'name="file"; filename="a.wav"\r\ncontent-type: audio/wav\r\n\r\n' + recording)
        head = f"--{BOUNDARY}\r\ncontent-disposition: form-data; ".encode()
        end = random.choice((f"--{BOUNDARY}--\r\n", f"--{BOUNDARY}", ""))
        return b"".join(head + part + b"\r\n" for part in parts) + end.encode()

    def _spoil(self, body: dict[str, Any]) -> None:
        random = self._random
        if not body or random.random() < 0.6:
            name = random.choice(list(FIELDS))
            body[name] = random.choice(FIELDS[name])
            return
        self._spoil_inside(body)

    def _spoil_inside(self, body: dict[str, Any]) -> None:
        random = self._random
        holder, key = self._place(body)
        if random.random() < 0.2:
            del holder[key]
        elif random.random() < 0.1:
            holder[key] = nested(random.randint(2, DEEP))
        else:
            holder[key] = deepcopy(random.choice(ODD))

    def _place(self, body: dict[str, Any]) -> tuple[Any, Any]:
        """A random value of the tree: its container and its key."""
        holder: Any = body
        while True:
            key: Any = self._random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            inner = holder[key]
            if not isinstance(inner, dict | list) or not inner or self._random.random() < 0.4:
                return holder, key
            holder = inner


class Fuzzer:
    """An endless stream of requests from a seed. ``models`` are served names, ``ids`` names of things that
    there are (responses, conversations, keys); ``key`` is what clients send, where keys are asked for."""

    def __init__(
        self,
        seed: int,
        host: str,
        models: Sequence[str],
        admin_token: str,
        *,
        key: str = "",
        ids: Sequence[str] = (),
    ) -> None:
        self._random = Random(seed)
        self._host = host
        self._models = models
        self._token = admin_token
        self._key = key
        self._ids = ids
        self._targets = targets()
        self._bodies = Bodies(self._random, models)

    def __iter__(self) -> Iterator[Fuzzed]:
        while True:
            yield self.broken() if self._random.random() < 0.4 else self.request()

    def request(self) -> Fuzzed:
        """Well-formed HTTP whose content may be wrong."""
        return Fuzzed("request", self._request(), whole=True)

    def broken(self) -> Fuzzed:
        """HTTP with some bytes changed, removed, doubled or cut off."""
        data = bytearray(self._request())
        for _ in range(self._random.randint(1, 6)):
            self._break(data)
        return Fuzzed("bytes", bytes(data), whole=False)

    def _request(self) -> bytes:
        random = self._random
        target = random.choice(self._targets)
        method = random.choice(METHODS) if random.random() < 0.1 else target.method
        kind = target.takes or JSON
        body = self._bodies.of(target) if target.takes or random.random() < 0.05 else b""
        headers = {"host": self._host, "connection": "close", "content-length": str(len(body))}
        headers["content-type"] = f"{FORM}; boundary={BOUNDARY}" if kind == FORM else kind
        secret = self._token if target.is_admin else self._key
        if secret and random.random() < 0.9:
            headers["authorization"] = f"Bearer {secret}"
        for _ in range(random.choice((0, 0, 1, 2, 4))):
            name = random.choice(list(HEADERS))
            headers[name] = random.choice(HEADERS[name])
        headers["connection"] = "close"
        path = PLACEHOLDER.sub(lambda found: self._name(found[1]), target.path)
        if random.random() < 0.05:
            path += random.choice(("/", "//", "/../admin/cache", "%2e%2e/", "/%00", quote("é"), "?x", ";a"))
        where = path + random.choice(QUERIES)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{method} {where} HTTP/1.1\r\n{lines}\r\n".encode("latin-1", "replace") + body

    def _name(self, placeholder: str) -> str:
        known = NAMES.get(placeholder, self._models if placeholder == "model" else self._ids)
        return self._random.choice(known if known and self._random.random() < 0.7 else STRANGE)

    def _break(self, data: bytearray) -> None:
        random = self._random
        at = random.randrange(len(data)) if data else 0
        match random.randrange(5):
            case 0 if data:
                data[at] = random.randrange(256)
            case 1:
                del data[at : at + random.randint(1, 20)]
            case 2:
                data[at:at] = random.choice((b"\r\n", b"\x00", b"\xff\xfe", b": ", b"0\r\n\r\n", b"A" * 9000))
            case 3:
                data += data[at : at + 200]
            case _:
                del data[max(at, len(data) // 2) :]


def nested(levels: int) -> Any:
    """Deeply nested lists and objects."""
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"type": "object", "properties": {"a": value}}
    return value
