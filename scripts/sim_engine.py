"""An OpenAI-compatible HTTP server in one small file, for tests and benchmarks only.

    python scripts/sim_engine.py --port 0 --ready-file ready.json --itl-ms 20 --slots 64

It has an engine's timing (slots, one prefill at a time, a prefix cache, inter-token latency) without its
work, speaks vLLM's HTTP in vLLM's shapes, and can go wrong in the ways an engine does (``Faults``).

Its text is made up, yet a pure function of the seed and of all ids before: ``/v1/completions`` with the
prompt's ids and the first k generated ids goes on exactly as the undisturbed answer would have, to its end.

Faults come from ``--faults die_after=5,times=1``, at run time as JSON to ``POST /sim/faults``, or for one
request in the header ``x-sim-fault: die_after=5``. ``GET /sim/stats`` counts, ``POST /sim/die`` ends it all.
Sampling parameters are accepted and change nothing; what would change the answer's form is refused.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import os
import random
import re
import signal
import socket
import struct
import sys
import time
import zlib
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from http import HTTPStatus
from itertools import product
from pathlib import Path
from typing import Any, cast

BLOCK = 16
"""Tokens in one block of the prefix cache."""

TICK_S = 0.001
"""What is due within one tick shares a timer. A stream's rhythm is kept exactly: errors do not add up."""

CLOSE_S = 1.0
"""How long a stop waits for clients to take what was written."""

EOS = 2
FIRST_WORD = 1000
FIRST_PIECE = 8192
PIECE_IDS = 1 << 17
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
NEVER = sys.maxsize

# ---- text ------------------------------------------------------------------------------------------------

SYLLABLES = [consonant + vowel for consonant in "bdkl" for vowel in "aeio"]
WORDS = [" " + "".join(syllables) for syllables in product(SYLLABLES, repeat=3)]
"""What the engine can say, 4,096 words; the id of the first is ``FIRST_WORD``."""

PIECE = re.compile(r" (?:[bdkl][aeio]){3}\b|\s?\S{1,4}|\s")
"""A word of the engine's own, or up to four characters of anything else: about a token each."""

JSON_WORDS = {FIRST_WORD + index: b'"%b"' % word.encode() for index, word in enumerate(WORDS)}
JSON_WORDS[EOS] = b'""'
PACKED = {token: struct.pack("=I", token) for token in JSON_WORDS}


class PieceIds(dict[str, int]):
    """The id of every piece of text: the vocabulary's own, or a hash."""

    def __missing__(self, piece: str) -> int:
        token = FIRST_PIECE + zlib.crc32(piece.encode()) % PIECE_IDS
        if len(self) < PIECE_IDS:
            self[piece] = token
        return token


IDS = PieceIds((word, FIRST_WORD + index) for index, word in enumerate(WORDS))


def tokenise(text: str) -> list[int]:
    return [IDS[piece] for piece in PIECE.findall(text)]


def detokenise(ids: list[int]) -> str:
    """The text of generated ids. A prompt's ids are hashes: their text is lost."""
    return "".join(WORDS[token - FIRST_WORD] for token in ids if token != EOS)


def render_chat(messages: list[dict[str, Any]]) -> list[int]:
    """Ids of a conversation; an earlier answer gets the ids that it was generated with."""
    ids: list[int] = []
    for message in messages:
        ids += [IDS[f"<|{message['role']}|>"], *tokenise(_text_of(message.get("content"))), EOS]
    return [*ids, IDS["<|assistant|>"]]


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def trailing_words(ids: list[int]) -> int:
    """How many words the engine has said already at the end of ``ids``."""
    count = 0
    while count < len(ids) and FIRST_WORD <= ids[-1 - count] < FIRST_WORD + len(WORDS):
        count += 1
    return count


class Speaker:
    """Says the next token of one answer."""

    def __init__(self, settings: SimSettings, prompt: list[int], ignore_eos: bool) -> None:
        seed = zlib.crc32(str(settings.seed).encode())
        self._state = zlib.crc32(array("I", prompt).tobytes(), seed)
        self._left = NEVER if ignore_eos else max(0, settings.tokens - trailing_words(prompt))
        self._stop_below = 0 if ignore_eos else int(settings.stop_share * (1 << 32))

    def next(self) -> int:
        mixed = (self._state * GOLDEN) & MASK
        stops = self._left <= 0 or (mixed >> 20) & 0xFFFFFFFF < self._stop_below
        token = EOS if stops else FIRST_WORD + (mixed >> 52)
        self._left -= 1
        self._state = zlib.crc32(PACKED[token], self._state)
        return token


# ---- settings and faults ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class SimSettings:
    """What the engine is like. Every field is also a flag: ``--itl-ms 20``."""

    model: str = "sim"
    max_model_len: int = 32768
    slots: int = 64
    """Requests that run at once; the others wait in order of arrival."""
    max_n: int = 1
    """What ``n`` may be. An answer takes so many slots; only its first choice is made up."""
    prefill_ms_per_1k: float = 0.0
    """For 1,000 prompt tokens that the prefix cache does not have. One request is prefilled at a time."""
    cache_tokens: int = 65536
    """Prompt and answer tokens that the prefix cache keeps, least recently used out first."""
    first_token_ms: float = 0.0
    """From the prefill's end to the first token: a step that prompts need not wait for one another in."""
    itl_ms: float = 20.0
    itl_growth: float = 0.0
    """A token takes ``itl_ms * (1 + itl_growth * (running - 1) / slots)``."""
    tokens: int = 64
    """Words of an answer that ends by itself; as in vLLM the end is one more token, without text."""
    stop_share: float = 0.0
    """Probability that a token is the end, so that answers differ in length."""
    seed: int = 0
    api_key: str = ""
    """Bearer key that ``/v1`` asks for; empty: none."""
    keep_bodies: int = 0
    """How many of the last requests ``/sim/stats`` shows."""


@dataclass(frozen=True)
class Faults:
    """What goes wrong."""

    refuse: bool = False
    """Nothing listens, and old connections are reset, but not for ``/sim/``: one of them can take it back."""
    hang_before: bool = False
    """No byte is ever sent, not even headers."""
    hang_after: int | None = None
    """Nothing more after so many tokens; the slot stays taken until the client leaves."""
    die_before: bool = False
    """The connection is reset instead of an answer."""
    die_after: int | None = None
    """The connection is reset after so many tokens."""
    error_after: int | None = None
    """An error event after so many tokens."""
    garbage: str | None = None
    """``http``: bytes that are no HTTP. ``json``: an answer that is no JSON."""
    first_byte_ms: float = 0.0
    """The answer starts so much later; no slot is taken meanwhile."""
    status: int | None = None
    """The answer is this HTTP status."""
    share: float = 1.0
    """Probability that a request is struck."""
    times: int | None = None
    """How many requests are struck before all is well again."""
    for_s: float | None = None
    """After how long all is well again."""


DEFAULTS = SimSettings()
NO_FAULTS = Faults()


def _flag(value: Any) -> bool:
    if str(value).lower() not in ("true", "1", "false", "0"):
        raise ValueError(value)
    return str(value).lower() in ("true", "1")


def _garbage(value: Any) -> str:
    if value not in ("http", "json"):
        raise ValueError(value)
    return str(value)


FAULT_TYPES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("refuse", "hang_before", "die_before"), _flag),
    **dict.fromkeys(("hang_after", "die_after", "error_after", "times"), int),
    **dict.fromkeys(("first_byte_ms", "share", "for_s"), float),
    "garbage": _garbage,
    "status": lambda value: HTTPStatus(int(value)).value,
}


def faults_of(values: Mapping[str, Any]) -> Faults:
    """Raises:
    ValueError: an unknown name or a value of the wrong type; the message names it.
    """
    typed: dict[str, Any] = {}
    for name, value in values.items():
        if name not in FAULT_TYPES:
            raise ValueError(f"unknown fault {name!r}; known are {', '.join(FAULT_TYPES)}")
        if value is None:
            continue
        try:
            typed[name] = FAULT_TYPES[name](value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"fault {name!r} cannot be {value!r}") from error
    return Faults(**typed)


def parse_faults(text: str) -> Faults:
    """``die_after=5,times=1``; a name alone is true.

    Raises:
        ValueError: as for ``faults_of``.
    """
    pairs = (item.strip().partition("=") for item in text.split(",") if item.strip())
    return faults_of({name: value if equals else True for name, equals, value in pairs})


# ---- requests and answers in vLLM's shapes ---------------------------------------------------------------


NOT_SIMULATED = ("echo", "logprobs", "stop")


class Refused(Exception):
    """A request that gets an HTTP error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Generation:
    """One generating request."""

    chat: bool
    request_id: str
    prompt: list[int]
    max_tokens: int
    stream: bool
    usage: bool
    token_ids: bool
    ignore_eos: bool
    salt: str = ""
    """vLLM's ``cache_salt``: prompts of different salts share no block."""
    slots: int = 1
    """How many it takes: one for each of its choices."""


def parse_generation(path: str, body: bytes, request_id: str, settings: SimSettings) -> Generation:
    """Raises:
    Refused: the request is wrong, or asks for what is not simulated.
    """
    try:
        values = json.loads(body)
        chat = path.endswith("/chat/completions")
        request = Generation(
            chat=chat,
            request_id=("chatcmpl-" if chat else "cmpl-") + request_id,
            prompt=render_chat(values["messages"]) if chat else _prompt_ids(values["prompt"]),
            max_tokens=int(values.get("max_completion_tokens") or values.get("max_tokens") or NEVER),
            stream=bool(values.get("stream")),
            usage=bool((values.get("stream_options") or {}).get("include_usage")),
            token_ids=bool(values.get("return_token_ids")),
            ignore_eos=bool(values.get("ignore_eos")),
            salt=str(values.get("cache_salt") or ""),
            slots=int(values.get("n") or 1),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(400, f"The request is not valid: {error!r}") from error
    if values.get("model", settings.model) != settings.model:
        raise Refused(404, f"The model `{values['model']}` does not exist.")
    if not 1 <= request.slots <= settings.max_n or any(values.get(name) for name in NOT_SIMULATED):
        raise Refused(400, f"Not simulated: n > {settings.max_n}, {', '.join(NOT_SIMULATED)}.")
    room = settings.max_model_len - len(request.prompt)
    if room < 1:
        raise Refused(400, f"Input length ({len(request.prompt)}) exceeds model's maximum context length.")
    return replace(request, max_tokens=min(request.max_tokens, room))


def _prompt_ids(prompt: Any) -> list[int]:
    if isinstance(prompt, str):
        return tokenise(prompt)
    if isinstance(prompt, list) and prompt and all(type(id_) is int and 0 <= id_ < 1 << 31 for id_ in prompt):
        return prompt
    raise TypeError("prompt must be a text or a list of token ids")


def to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def error_body(status: int, message: str) -> bytes:
    kind = HTTPStatus(status).phrase.replace(" ", "") + "Error"
    return to_json({"error": {"message": message, "type": kind, "param": None, "code": status}})


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


TEXT_MARK, IDS_MARK = "\0text", "\0ids"  # stand where a chunk's text and ids go


class Shape:
    """One answer's bytes. Chunks differ in text and ids only, so they are made from one template."""

    def __init__(self, request: Generation, model: str) -> None:
        self._request = request
        kind = "chat.completion.chunk" if request.chat else "text_completion"
        self._head = {"id": request.request_id, "object": kind, "created": int(time.time()), "model": model}
        self._template = self._cut(self._choice(None, None))

    def role(self) -> bytes:
        """The event before the first token: chats only."""
        if not self._request.chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        ids = {"prompt_token_ids": self._prompt_ids(), "prompt_text": None}
        return event(to_json(self._head | {"choices": [choice]} | ids))

    def chunk(self, token: int, position: int, finish_reason: str | None) -> bytes:
        """One token's event; the first and the last one have more to say."""
        before, between, after = self._template
        if position == 0 or finish_reason is not None:
            prompt_ids = self._prompt_ids() if position == 0 else None
            before, between, after = self._cut(self._choice(finish_reason, prompt_ids))
        ids = b"[%d]" % token if self._request.token_ids else b"null"
        return b"".join((before, JSON_WORDS[token], between, ids, after))

    def end(self, completion_tokens: int) -> bytes:
        """What follows the last token."""
        if not self._request.usage:
            return event(b"[DONE]")
        usage = {"choices": [], "usage": self._usage(completion_tokens), "system_fingerprint": "sim"}
        return event(to_json(self._head | usage)) + event(b"[DONE]")

    def whole(self, ids: list[int], finish_reason: str) -> bytes:
        """The body of an answer that is not streamed."""
        shown = ids if self._request.token_ids else None
        end = {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None, "token_ids": shown}
        unset = dict.fromkeys(("kv_transfer_params", "ec_transfer_params", "metrics"))
        prompt: dict[str, Any] = {"prompt_logprobs": None, "prompt_token_ids": self._prompt_ids()}
        choice: dict[str, Any] = {"index": 0, "text": detokenise(ids), **end, **prompt}
        if self._request.chat:
            empty = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))
            message = {"role": "assistant", "content": detokenise(ids), **empty}
            choice = {"index": 0, "message": message, **end}
            unset = {**prompt, "prompt_text": None, **unset}
        details = dict.fromkeys(("prompt_tokens_details", "completion_tokens_details"))
        about = {"service_tier": None, "system_fingerprint": "sim", "usage": self._usage(len(ids)) | details}
        head = self._head | {"object": "chat.completion" if self._request.chat else "text_completion"}
        return to_json(head | {"choices": [choice | {"routed_experts": None}]} | about | unset)

    def _choice(self, finish_reason: str | None, prompt_ids: list[int] | None) -> dict[str, Any]:
        end: dict[str, Any] = {"logprobs": None, "finish_reason": finish_reason}
        if not self._request.chat:
            rest = {"stop_reason": None, "prompt_token_ids": prompt_ids, "token_ids": IDS_MARK}
            return {"index": 0, "text": TEXT_MARK, **end, **rest}
        if finish_reason is not None:
            end["stop_reason"] = None
        return {"index": 0, "delta": {"content": TEXT_MARK}, **end, "token_ids": IDS_MARK}

    def _cut(self, choice: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        """A chunk's bytes before, between and after text and ids."""
        extra = {}
        if choice["finish_reason"] is not None and not self._request.usage:
            extra = {"system_fingerprint": "sim"}
        chunk = event(to_json(self._head | {"choices": [choice]} | extra))
        before, rest = chunk.split(to_json(TEXT_MARK))
        between, after = rest.split(to_json(IDS_MARK))
        return before, between, after

    def _prompt_ids(self) -> list[int] | None:
        return self._request.prompt if self._request.token_ids else None

    def _usage(self, completion_tokens: int) -> dict[str, Any]:
        prompt = len(self._request.prompt)
        total = prompt + completion_tokens
        return {"prompt_tokens": prompt, "total_tokens": total, "completion_tokens": completion_tokens}


# ---- time and memory -------------------------------------------------------------------------------------


class Wheel:
    """Callbacks by due time (``time.monotonic``); one timer serves all that are due within a tick."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: dict[int, list[Callable[[], None]]] = {}
        self._ticks: list[int] = []  # a heap of the keys of `_due`
        self._timer: asyncio.TimerHandle | None = None

    def at(self, due_s: float, callback: Callable[[], None]) -> None:
        tick = int(due_s / TICK_S + 0.5)
        if tick in self._due:
            self._due[tick].append(callback)
            return
        self._due[tick] = [callback]
        heapq.heappush(self._ticks, tick)
        if self._ticks[0] == tick:
            self._arm()

    def stop(self) -> None:
        self._due.clear()
        self._ticks.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._ticks[0] * TICK_S - time.monotonic(), self._fire)

    def _fire(self) -> None:
        now = time.monotonic() / TICK_S + 0.5  # loops wake in whole milliseconds, some a little early
        while self._ticks and self._ticks[0] <= now:
            for callback in self._due.pop(heapq.heappop(self._ticks)):
                callback()
        if self._ticks:
            self._arm()


class PrefixCache:
    """Which blocks of tokens are in memory. A block's key covers everything before it as well."""

    def __init__(self, tokens: int) -> None:
        self._room = tokens // BLOCK
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, ids: list[int], salt: str = "") -> int:
        """How much of a prompt is here; its last token is always computed."""
        count = 0
        for key in self._keys(ids[:-1], salt):
            if key not in self._blocks:
                break
            count += BLOCK
        return count

    def keep(self, ids: list[int], salt: str = "") -> None:
        # In this order ends are forgotten before the beginnings that they need.
        for key in reversed(self._keys(ids, salt)):
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) > self._room:
            self._blocks.popitem(last=False)

    @staticmethod
    def _keys(ids: list[int], salt: str) -> list[int]:
        data = array("I", ids)
        keys, key = [], hash(salt)
        for start in range(0, len(data) - BLOCK + 1, BLOCK):
            key = hash((key, data[start : start + BLOCK].tobytes()))
            keys.append(key)
        return keys


# ---- the engine ------------------------------------------------------------------------------------------


@dataclass
class Counters:
    """What has happened since the start."""

    requests: int = 0
    finished: int = 0
    aborted: int = 0
    """Clients that left before the end."""
    faulted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt tokens, those that the prefix cache had."""
    generated_tokens: int = 0


@dataclass
class Stats(Counters):
    """Counters, and what is going on now."""

    running: int = 0
    waiting: int = 0
    connections: int = 0
    seen: list[dict[str, Any]] = field(default_factory=list)
    """The last requests: path, headers, body."""


class Answer:
    """One request on its way through the engine."""

    def __init__(self, engine: SimEngine, client: Connection, request: Generation, faults: Faults) -> None:
        self.request = request
        self.ids: list[int] = []
        self.admitted_s = 0.0
        self.over = False
        self._scheduler = engine.scheduler
        self._client = client
        self._faults = faults
        self._shape = Shape(request, engine.settings.model)
        self._speaker = Speaker(engine.settings, request.prompt, request.ignore_eos)
        self._due_s = 0.0
        points = (faults.hang_after, faults.die_after, faults.error_after, 0 if faults.hang_before else None)
        self._struck_at = min((point for point in points if point is not None), default=NEVER)

    def open(self) -> None:
        """Queue for a slot. As in vLLM, a stream's headers go out at once."""
        if self.over:
            return
        if self.request.stream and not self._faults.hang_before:
            self._client.start_stream()
        self._scheduler.enqueue(self)

    def begin(self, due_s: float) -> None:
        """The prompt is prefilled: the first token comes at ``due_s``."""
        self._due_s = due_s
        if due_s > time.monotonic():
            self._scheduler.wheel.at(due_s, self._step)
        else:
            self._step()

    def _step(self) -> None:
        """One token."""
        if self.over:
            return
        position = len(self.ids)
        if position == self._struck_at:
            self._strike()
            return
        token = self._speaker.next()
        self.ids.append(token)
        reason = self._finish_reason(token)
        if self.request.stream:
            chunk = http_chunk(self._shape.chunk(token, position, reason))
            self._client.write(chunk if position else http_chunk(self._shape.role()) + chunk)
        if reason is not None:
            self._finish(reason)
            return
        # Lateness is not made up for by a burst: a real engine's later steps would be late as well.
        self._due_s = max(self._due_s + self._scheduler.itl_s(), time.monotonic())
        self._scheduler.wheel.at(self._due_s, self._step)

    def _finish_reason(self, token: int) -> str | None:
        if token == EOS:
            return "stop"
        return "length" if len(self.ids) == self.request.max_tokens else None

    def _finish(self, reason: str) -> None:
        self._scheduler.finish(self)
        if self.request.stream:
            self._client.end_stream(self._shape.end(len(self.ids)))
        else:
            self._client.respond(200, self._shape.whole(self.ids, reason))

    def _strike(self) -> None:
        """Die, break off with an error, or hang: then no further step is planned."""
        if self._struck_at == self._faults.die_after:
            self._client.reset()
        elif self._struck_at == self._faults.error_after:
            self._scheduler.release(self)
            body = error_body(500, "EngineCore encountered an issue.")
            if self.request.stream:
                self._client.end_stream(event(body) + event(b"[DONE]"))
            else:
                self._client.respond(500, body)


class Scheduler:
    """Slots, the prefill queue and the prefix cache."""

    def __init__(self, settings: SimSettings) -> None:
        self.wheel = Wheel()
        self.counters = Counters()
        self._settings = settings
        self._cache = PrefixCache(settings.cache_tokens)
        self._waiting: deque[Answer] = deque()
        self._running: set[Answer] = set()
        self._taken = 0
        self._to_prefill: deque[Answer] = deque()
        self._prefilling: Answer | None = None
        self._prefilled_s = 0.0
        self._changed = asyncio.Event()

    def stats(self, **more: Any) -> Stats:
        return Stats(**vars(self.counters), running=self._taken, waiting=len(self._waiting), **more)

    async def change(self) -> None:
        """Wait for the next request that comes, goes or gets a slot."""
        await self._changed.wait()

    def note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def itl_s(self) -> float:
        share = max(0, self._taken - 1) / self._settings.slots
        return self._settings.itl_ms / 1000 * (1 + self._settings.itl_growth * share)

    def enqueue(self, answer: Answer) -> None:
        self._waiting.append(answer)
        self._admit()

    def finish(self, answer: Answer) -> None:
        self.counters.finished += 1
        self.release(answer)

    def abort(self, answer: Answer) -> None:
        """The client has left."""
        self.counters.aborted += 1
        self.release(answer)

    def release(self, answer: Answer) -> None:
        """Take back whatever the answer holds, wherever it has come to."""
        answer.over = True
        if answer in self._running:
            self._running.remove(answer)
            self._taken -= answer.request.slots
            self.counters.generated_tokens += len(answer.ids)
            if answer.ids:
                self._cache.keep(answer.request.prompt + answer.ids, answer.request.salt)
        elif answer in self._waiting:
            self._waiting.remove(answer)
        asyncio.get_running_loop().call_soon(self._admit)
        self.note_change()

    def _admit(self) -> None:
        while self._waiting and self._taken + self._waiting[0].request.slots <= self._settings.slots:
            answer = self._waiting.popleft()
            self._taken += answer.request.slots
            answer.admitted_s = time.monotonic()
            self._running.add(answer)
            self._to_prefill.append(answer)
        self.note_change()
        self._prefill()

    def _prefill(self) -> None:
        """One prompt after the other. Ends are computed, not measured: a late timer delays no later one."""
        while self._to_prefill and self._prefilling is None:
            answer = self._to_prefill.popleft()
            if answer.over:
                continue
            start = max(self._prefilled_s, answer.admitted_s)
            self._prefilled_s = start + self._prefill_s(answer.request)
            if self._prefilled_s > time.monotonic():
                self._prefilling = answer
                self.wheel.at(self._prefilled_s, self._end_prefill)
            else:
                self._begin(answer)

    def _prefill_s(self, request: Generation) -> float:
        prompt = request.prompt
        cached = self._cache.cached_tokens(prompt, request.salt)
        self.counters.prompt_tokens += len(prompt)
        self.counters.cached_tokens += cached
        return (len(prompt) - cached) * self._settings.prefill_ms_per_1k / 1e6

    def _end_prefill(self) -> None:
        answer, self._prefilling = self._prefilling, None
        if answer is not None and not answer.over:
            self._begin(answer)
        self._prefill()

    def _begin(self, answer: Answer) -> None:
        self._cache.keep(answer.request.prompt, answer.request.salt)
        answer.begin(self._prefilled_s + self._settings.first_token_ms / 1000)


class SimEngine:
    """Listens, and answers like an engine with these settings. Made inside a running event loop."""

    def __init__(self, settings: SimSettings = DEFAULTS, faults: Faults = NO_FAULTS) -> None:
        self.settings = settings
        self.scheduler = Scheduler(settings)
        self.connections: set[Connection] = set()
        self.ending = False
        self.ended = asyncio.Event()
        """Set by ``stop``, ``kill`` and ``POST /sim/die``."""
        self._faults = faults
        self._strikes_left = faults.times
        self._random = random.Random(settings.seed)
        self._seen: deque[dict[str, Any]] = deque(maxlen=settings.keep_bodies)
        self._server: asyncio.Server | None = None
        self._address = ("127.0.0.1", 0)
        self._recovery: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; returns the URL."""
        self._address = (host, port)
        await self._listen()
        await self.set_faults(self._faults)
        return f"http://{host}:{self._address[1]}"

    async def stop(self) -> None:
        """Close every connection and stop listening."""
        await self._end(Connection.close)

    async def kill(self) -> None:
        """Reset every connection and stop listening, as if the process had died."""
        await self._end(Connection.reset)

    async def set_faults(self, faults: Faults) -> None:
        """From now on these, and no others."""
        self._faults, self._strikes_left = faults, faults.times
        if self._recovery is not None:
            self._recovery.cancel()
        if faults.for_s is not None:
            self._recovery = asyncio.get_running_loop().call_later(faults.for_s, self._recover)
        if faults.refuse:
            await self._stop_listening()
        elif self._server is None and not self.ended.is_set():
            await self._listen()

    async def until(self, check: Callable[[Stats], bool]) -> None:
        """Wait until the numbers are so; looks again whenever a request comes, goes or gets a slot."""
        while not check(self.stats()):
            await self.scheduler.change()

    def stats(self) -> Stats:
        return self.scheduler.stats(connections=len(self.connections), seen=list(self._seen))

    def handle(self, client: Connection, route: str, headers: dict[str, str], body: bytes) -> None:
        """Answer one request, now or later, through ``client``. ``route`` is method and path."""
        if self._faults.refuse and " /sim/" not in route:
            client.reset()
            return
        try:
            self._route(client, route, headers, body)
        except Refused as error:
            client.respond(error.status, error_body(error.status, str(error)))

    def _route(self, client: Connection, route: str, headers: dict[str, str], body: bytes) -> None:
        expected = f"Bearer {self.settings.api_key}"
        if " /v1/" in route and self.settings.api_key and headers.get("authorization") != expected:
            raise Refused(401, "Unauthorized")
        match route:
            case "POST /v1/chat/completions" | "POST /v1/completions":
                self._generate(client, route.partition(" ")[2], headers, body)
            case "GET /v1/models":
                client.respond(200, to_json({"object": "list", "data": [self._card()]}))
            case "GET /health":
                client.respond(200, b"")
            case "GET /sim/stats":
                client.respond(200, to_json(asdict(self.stats())))
            case "POST /sim/faults":
                self._spawn(self._change_faults(client, body))
            case "POST /sim/die":
                self._spawn(self.kill())
            case _:
                raise Refused(404, "Not Found")

    def _card(self) -> dict[str, Any]:
        """The model as ``/v1/models`` shows it."""
        card = {"id": self.settings.model, "object": "model", "created": 0, "owned_by": "sim"}
        return {
            **card,
            "root": self.settings.model,
            "parent": None,
            "max_model_len": self.settings.max_model_len,
        }

    def _generate(self, client: Connection, path: str, headers: dict[str, str], body: bytes) -> None:
        self.scheduler.counters.requests += 1
        if self.settings.keep_bodies:
            self._seen.append({"path": path, "headers": headers, "body": body.decode(errors="replace")})
        request_id = headers.get("x-request-id") or os.urandom(16).hex()
        request = parse_generation(path, body, request_id, self.settings)
        faults = self._faults_for(headers.get("x-sim-fault"))
        if not _answer_wrongly(client, request, faults):
            client.answer = Answer(self, client, request, faults)
            if faults.first_byte_ms:
                self.scheduler.wheel.at(time.monotonic() + faults.first_byte_ms / 1000, client.answer.open)
            else:
                client.answer.open()
        self.scheduler.note_change()

    def _faults_for(self, header: str | None) -> Faults:
        """What strikes this request: its header's fault, else the engine's, as chance and count have it."""
        try:
            faults = self._faults if header is None else parse_faults(header)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        if faults == NO_FAULTS or self._random.random() >= faults.share:
            return NO_FAULTS
        if header is None and self._strikes_left is not None:
            if self._strikes_left == 0:
                return NO_FAULTS
            self._strikes_left -= 1
        self.scheduler.counters.faulted += 1
        return faults

    async def _change_faults(self, client: Connection, body: bytes) -> None:
        try:
            await self.set_faults(faults_of(json.loads(body or b"{}")))
        except (ValueError, AttributeError) as error:
            client.respond(400, error_body(400, str(error)))
        else:
            client.respond(200, to_json(asdict(self._faults)))

    def _recover(self) -> None:
        self._spawn(self.set_faults(NO_FAULTS))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        host, port = self._address
        self._server = await loop.create_server(lambda: Connection(self), host, port, backlog=1024)
        self._address = (host, self._server.sockets[0].getsockname()[1])

    async def _stop_listening(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        for listener in server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        await asyncio.sleep(0)  # a server that closes under a connection being accepted leaks it (3.11)
        server.close()

    async def _end(self, close: Callable[[Connection], None]) -> None:
        self.ending = True
        await self._stop_listening()
        self.scheduler.wheel.stop()
        if self._recovery is not None:
            self._recovery.cancel()
        closing = [connection.closed for connection in self.connections]
        for connection in list(self.connections):
            close(connection)
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_S)
        self.ended.set()


def _answer_wrongly(client: Connection, request: Generation, faults: Faults) -> bool:
    """Whether a fault is the whole answer; if so, it has been given."""
    if faults.die_before:
        client.reset()
    elif faults.status is not None:
        client.respond(faults.status, error_body(faults.status, "A simulated failure."))
    elif faults.garbage == "http":
        client.write(b"\x16\x03\x01 these bytes are no HTTP\r\n\r\n")
        client.close()
    elif faults.garbage == "json" and request.stream:
        client.start_stream()
        client.end_stream(event(b'{"id": this is no JSON'))
    elif faults.garbage == "json":
        client.respond(200, b'{"id": this is no JSON')
    else:
        return False
    return True


# ---- HTTP ------------------------------------------------------------------------------------------------

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: sim\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


def http_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; nothing for no data, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class Connection(asyncio.Protocol):
    """One client: keep-alive, one request at a time, bodies with a length."""

    def __init__(self, engine: SimEngine) -> None:
        self.answer: Answer | None = None
        self.closed = asyncio.get_running_loop().create_future()
        self._engine = engine
        self._buffer = b""
        self._busy = False
        self._last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.write = self._transport.write
        self._engine.connections.add(self)
        if self._engine.ending:  # accepted in the listener's last moment
            self.reset()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._take_requests()

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.connections.discard(self)
        if self.answer is not None:
            self._engine.scheduler.abort(self.answer)
            self.answer = None
        self.closed.set_result(None)

    def respond(self, status: int, body: bytes) -> None:
        retry = "retry-after: 1\r\n" if status in (429, 503) else ""
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nserver: sim\r\n{retry}"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.write(head.encode() + body)
        self._done()

    def start_stream(self) -> None:
        self.write(STREAM_HEAD)

    def end_stream(self, events: bytes) -> None:
        self.write(http_chunk(events) + LAST_CHUNK)
        self._done()

    def close(self) -> None:
        self._forget_answer()
        self._transport.close()

    def reset(self) -> None:
        """Close so that the client sees a broken connection (RST), not an end."""
        self._forget_answer()
        self._transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self._transport.abort()

    def _forget_answer(self) -> None:
        answer, self.answer = self.answer, None
        if answer is not None:
            self._engine.scheduler.release(answer)

    def _done(self) -> None:
        self.answer = None
        self._busy = False
        if self._last:
            self._transport.close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._take_requests)

    def _take_requests(self) -> None:
        if self._busy or self._transport.is_closing():
            return
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        try:
            route, headers = _parse_head(head.decode("latin-1"))
            length = int(headers.get("content-length", 0))
        except ValueError:
            self._last = True
            self.respond(400, error_body(400, "This is no HTTP request with a length."))
            return
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        self._busy = True
        self._last = headers.get("connection", "").lower() == "close"
        self._engine.handle(self, route, headers, rest[:length])


def _parse_head(head: str) -> tuple[str, dict[str, str]]:
    """Method and path (no query), and the headers by lower-case name."""
    request_line, *lines = head.split("\r\n")
    method, target, _ = request_line.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if "transfer-encoding" in headers:
        raise ValueError("chunked request bodies are not read")
    return f"{method} {target.partition('?')[0]}", headers


# ---- a process of its own --------------------------------------------------------------------------------


async def serve(options: argparse.Namespace) -> int:
    """Run until a signal (0) or until the engine is told to die (1)."""
    values = {item.name: getattr(options, item.name) for item in fields(SimSettings)}
    engine = SimEngine(SimSettings(**values), parse_faults(options.faults))
    url = await engine.start(options.host, options.port)
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    if options.ready_file is not None:
        part = options.ready_file.with_suffix(".part")
        part.write_text(json.dumps({"url": url, "pid": os.getpid()}))
        part.replace(options.ready_file)
    print(url, flush=True)
    waits = [asyncio.ensure_future(happened.wait()) for happened in (signalled, engine.ended)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if signalled.is_set():
        await engine.stop()
    await asyncio.wait(waits[1:])
    for wait in waits:
        wait.cancel()
    return 0 if signalled.is_set() else 1


def run(main: Coroutine[Any, Any, int]) -> int:
    """On uvloop where it is installed: steadier ticks."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--ready-file", type=Path, help="gets url and pid as JSON once the engine listens")
    parser.add_argument("--faults", default="", help="such as die_after=5,times=1")
    for item in fields(SimSettings):
        flag = "--" + item.name.replace("_", "-")
        parser.add_argument(flag, type=type(item.default), default=item.default, help=f"{item.default!r}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(run(serve(arguments())))
