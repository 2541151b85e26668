"""Warm-up: requests that an engine answers before it counts as ready.

They cover what the first user would otherwise wait for: tokenizer, chat template, sampling with and without a
temperature, both endpoints, the HTTP path, and the shapes of real traffic: prompts up to one that is
prefilled in chunks, batches up to what the engine runs at once, speculation, structured output.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import msgspec

from deployments.wire.http1 import BrokenConnection, NoConnection, Origin, request_bytes
from deployments.wire.pool import ConnectionPool
from serve_app.settings.paths import GENERATE, POOLING
from serve_app.wire.private_address import PrivateAddress

TIMEOUT_S = 300.0
"""Time for one request. The first one may compile code that the start did not."""

CONNECT_TIMEOUT_S = 10.0
READ_AHEAD = 1 << 20
"""Bytes; far more than a response has."""

JSON = {"content-type": "application/json"}

REPEATED = "The quick brown fox jumps over the lazy dog. "
REPEATS = 20  # about 200 tokens

PROMPT_TOKENS = (256, 1024, 4096)
"""Prompt lengths tried before the longest one."""

LONGEST_SHARE = 0.5
"""The longest prompt as a share of the context, if the context is too short for a chunked prompt: prompts of
full length are rare."""

ANSWER_TOKENS = 4
REPEATED_ANSWER_TOKENS = 16
"""Enough tokens for drafts to be made, verified and rejected."""

BATCHES = (4, 16, 64)
"""Concurrent requests; above the largest size the time of a step grows linearly."""

TRANSCRIPTION = "transcription"
AUDIO_PACKAGES = ("soundfile", "av")
"""vLLM reads WAV, FLAC, Ogg and MP3 with the first, resamples and reads everything else with the second."""

Clock = Callable[[], float]

logger = logging.getLogger("ray.serve")


class WarmUpError(RuntimeError):
    """The engine did not answer a warm-up request, or cannot; the message names its kind and the reason."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """The engine's limits that shape the warm-up: tokens of its context, tokens per step, concurrent
    sequences; whether it speculates, and whether it must have structured outputs; the tasks of its model;
    whether it has code of its own for some sizes, or compiles it, as all but eager engines on CPUs do."""

    context: int
    batched_tokens: int
    sequences: int
    speculates: bool = False
    structured: bool = False
    tasks: tuple[str, ...] = (GENERATE,)
    differs_by_size: bool = True


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of an ascending series of warm-up requests. ``size`` in tokens or requests."""

    kind: str
    size: int
    path: str
    bodies: list[dict[str, Any]]


POOLED = frozenset({"embed", "classify", "token_embed", "token_classify"})
"""The tasks whose models take a list of texts."""

ERROR_EVENT = b'data: {"error"'
"""How an engine that fails after its first byte reports the error inside the stream."""

GUIDED = "structured output"
"""The first such request decides which grammar compiler vLLM uses for all later ones, unless
``structured_outputs_backend`` says it: with a common schema that is xgrammar, and no client's unusual one
chooses another. It runs beside the other requests: the compiler's start takes a second of another thread."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


async def warm_up(
    address: PrivateAddress,
    model: str,
    shapes: Shapes,
    *,
    budget_s: float,
    clock: Clock = time.monotonic,
) -> dict[str, float]:
    """Send the warm-up requests to a listener; returns the seconds that each kind took.

    Larger prompts and batches are skipped if, by the time of the next smaller one, they would not end within
    ``budget_s`` of the beginning. All other requests are always sent.

    Raises:
        WarmUpError: a response was not a 200, or did not come.
    """
    pool = ConnectionPool(connect_timeout_s=CONNECT_TIMEOUT_S, idle_s=TIMEOUT_S, read_ahead=READ_AHEAD)
    with contextlib.closing(pool):
        run = _Run(pool, Origin.behind(address), clock, budget_s)
        if GENERATE not in shapes.tasks:
            await run.climb([_pooled(model, size) for size in pooled_sizes(shapes)])
            return run.took
        async with run.beside(GUIDED, CHAT, _by_schema(model), needed=shapes.structured):
            (first, body), *others = _always(model, shapes)
            await run.send(first, CHAT, [body])
            # Where no batch has code of its own, one covers them all.
            await run.each(others, at_once=not shapes.differs_by_size)
        if not shapes.differs_by_size:
            return run.took
        tokens = await run.tokens(model, REPEATED * REPEATS)
        await run.climb([_prompt(model, tokens, length) for length in prompt_lengths(shapes)])
        await run.climb([_batch(model, size) for size in batch_sizes(shapes)])
    return run.took


def need_audio_packages(tasks: Sequence[str], find: Callable[[str], object] = find_spec) -> None:
    """Raises: WarmUpError: the model takes nothing but recordings, and vLLM could read none."""
    missing = [name for name in AUDIO_PACKAGES if find(name) is None] if TRANSCRIPTION in tasks else []
    if not missing:
        return
    lacks = f"recordings cannot be read without {' and '.join(missing)}: pip install 'promptly-serve[audio]'"
    if GENERATE not in tasks:
        raise WarmUpError(lacks)
    logger.warning("%s", lacks)


def prompt_lengths(shapes: Shapes) -> list[int]:
    """Tokens of each prompt, ascending. If the context allows it, the longest exceeds the tokens of a step,
    so that it is prefilled in chunks."""
    room = shapes.context - ANSWER_TOKENS
    chunked = shapes.batched_tokens + shapes.batched_tokens // 4
    longest = chunked if chunked <= room else int(room * LONGEST_SHARE)
    lengths = [length for length in PROMPT_TOKENS if length < longest]
    return [*lengths, longest] if longest > 0 else lengths


def batch_sizes(shapes: Shapes) -> list[int]:
    """Requests of each batch, ascending."""
    most = min(shapes.sequences, BATCHES[-1])
    return [*(size for size in BATCHES if size < most), most] if most > 1 else []


def pooled_sizes(shapes: Shapes) -> list[int]:
    """Texts of each request to a model that gives vectors or classes, ascending; empty for any other."""
    if not POOLED.intersection(shapes.tasks):
        return []
    return [1, *batch_sizes(shapes)] if shapes.differs_by_size else [1]


class _Run:
    """One warm-up: its connections, its deadline, and the times measured."""

    def __init__(self, pool: ConnectionPool, origin: Origin, clock: Clock, budget_s: float) -> None:
        self.took: dict[str, float] = {}
        self._pool = pool
        self._origin = origin
        self._clock = clock
        self._ends_at = clock() + budget_s

    async def send(self, kind: str, path: str, bodies: Sequence[dict[str, Any]]) -> None:
        """Send all bodies concurrently. Raises: WarmUpError."""
        started = self._clock()
        logger.info("warm-up: %s", kind)  # the start's terminal shows it
        await asyncio.gather(*(self._post(kind, path, body) for body in bodies))
        self.took[kind] = self._clock() - started

    async def each(self, requests: Sequence[tuple[str, dict[str, Any]]], *, at_once: bool) -> None:
        """Send each by itself, or all ``at_once``, as one kind. Raises: WarmUpError."""
        if at_once:
            await self.send(", ".join(kind for kind, _ in requests), CHAT, [body for _, body in requests])
            return
        for kind, body in requests:
            await self.send(kind, CHAT, [body])

    @contextlib.asynccontextmanager
    async def beside(
        self, kind: str, path: str, body: dict[str, Any], *, needed: bool
    ) -> AsyncIterator[None]:
        """Send it while others are sent inside; its time is what it takes longer than these. Raises:
        WarmUpError: it failed, and is ``needed``."""
        request = asyncio.create_task(self._post(kind, path, body))
        try:
            yield
            started = self._clock()
            await request
            self.took[kind] = self._clock() - started
        except WarmUpError as error:
            if needed or not request.done() or request.exception() is not error:
                raise
            logger.warning("%s", error)
        finally:
            request.cancel()

    async def tokens(self, model: str, text: str) -> list[int]:
        """The engine's own tokens of ``text``. Raises: WarmUpError."""
        answer = await self._post("tokenize", "/tokenize", {"model": model, "prompt": text})
        return list(msgspec.json.decode(answer)["tokens"])

    async def climb(self, rungs: Sequence[Rung]) -> None:
        """Send from the smallest on, while the next one is expected to end in time. Raises: WarmUpError."""
        seconds_each = 0.0
        for rung in rungs:
            if self._clock() + seconds_each * rung.size > self._ends_at:
                logger.info("warm-up: %s left out, the time is up (engine.warm_up_budget_s)", rung.kind)
                return
            await self.send(rung.kind, rung.path, rung.bodies)
            seconds_each = self.took[rung.kind] / rung.size

    async def _post(self, kind: str, path: str, body: dict[str, Any]) -> bytes:
        request = request_bytes(self._origin, "POST", path, JSON, msgspec.json.encode(body))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status, answer = await self._pool.ask(self._origin, request)
        except TimeoutError as error:
            raise WarmUpError(f"warm-up ({kind}): no answer within {TIMEOUT_S:.0f} s") from error
        except (NoConnection, BrokenConnection) as error:
            raise WarmUpError(f"warm-up ({kind}): {type(error).__name__}: {error}") from error
        if status != 200 or ERROR_EVENT in answer:
            error_text = answer[answer.find(ERROR_EVENT) if status == 200 else 0 :][:500]
            raise WarmUpError(f"warm-up ({kind}): answered {status}: {error_text.decode(errors='replace')}")
        return answer


def _always(model: str, shapes: Shapes) -> list[tuple[str, dict[str, Any]]]:
    """The requests that are always sent."""
    kinds = [
        ("first request", _chat(model, "Hello")),
        ("sampling", _chat(model, "Hello again", temperature=0.7, top_p=0.9, top_k=20)),
        ("whole answer", _chat(model, "Say yes.", stream=False)),
    ]
    if shapes.speculates:
        repeated = f"Repeat: {REPEATED * 4}"
        kinds.append(("speculation", _chat(model, repeated, max_tokens=REPEATED_ANSWER_TOKENS)))
    return kinds


def _by_schema(model: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
    shape = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return _chat(model, "Say yes as JSON.", response_format=shape)


def _prompt(model: str, tokens: Sequence[int], length: int) -> Rung:
    """One prompt of exactly ``length`` tokens. It starts at a different offset than the others, so that no
    earlier prompt is a prefix of it."""
    start = length % len(tokens)
    repeated = [*tokens[start:], *tokens[:start]] * (length // len(tokens) + 1)
    body = {"model": model, "prompt": repeated[:length], "max_tokens": ANSWER_TOKENS}
    return Rung(
        f"prompt of {length} tokens", length, COMPLETIONS, [body | {"temperature": 0, "stream": True}]
    )


def _batch(model: str, size: int) -> Rung:
    texts = [f"Count from {number} to {number + size}." for number in range(size)]
    return Rung(f"batch of {size}", size, CHAT, [_chat(model, text) for text in texts])


def _pooled(model: str, size: int) -> Rung:
    texts = [f"Text {number} of {size}." for number in range(size)]
    return Rung(f"batch of {size}", size, POOLING, [{"model": model, "input": texts}])


def _chat(model: str, text: str, **fields: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    return body | {"max_tokens": ANSWER_TOKENS, "temperature": 0, "stream": True} | fields
