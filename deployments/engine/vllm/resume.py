"""Lets vLLM go on with an answer that another engine began.

vLLM has no request that means "so far the answer is this". Its front end keeps everything that it knows about
an answer besides its tokens: the text that is not sent yet, the beginnings of stop texts, what the parsers of
tool calls and of reasoning have seen, how much was generated. So the front end is given the tokens so far as
if its engine had just made them, in the pieces in which they came. The engine itself gets them as the end of
the prompt. What comes then is the rest of the same answer.

Checked against vLLM 0.29. When it moves, look at ``AsyncLLM``:

- ``_add_request`` registers a request in ``output_processor`` and sends it to ``engine_core``;
- ``generate`` takes each output from ``RequestOutputCollector.get_nowait``, and waits for ``get`` where there
  is none;
- ``OutputProcessor.process_outputs`` takes the engine's outputs, ``request_states`` has each request's state,
  and ``is_prefilling`` says that its first token is to come.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import Any

Told = Sequence[Sequence[int]]
"""The tokens of an answer so far, in the pieces in which the other engine sent them."""


class Resuming:
    """One ``AsyncLLM`` that can be told the beginning of an answer."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._told: ContextVar[Told] = ContextVar("told", default=())
        self._add = client._add_request
        client._add_request = self._add_request

    @contextmanager
    def telling(self, told: Told) -> Iterator[None]:
        """A request that is made inside goes on with this answer; it must have one choice, and a grammar
        may not guide it."""
        token = self._told.set(told)
        try:
            yield
        finally:
            self._told.reset(token)

    async def _add_request(self, request: Any, prompt: Any, parent: Any, index: int, queue: Any) -> None:
        told = self._told.get()
        if not told:
            await self._add(request, prompt, parent, index, queue)
            return
        params = request.sampling_params
        if parent is not None or params is None or params.structured_outputs is not None:
            from vllm.exceptions import VLLMValidationError

            raise VLLMValidationError("An answer of several choices, or of a grammar, cannot go on.")
        self._client.check_admission(request_id=request.request_id)
        self._client.output_processor.add_request(request, prompt, None, 0, queue)
        queue.get_nowait = _Telling(self._client, request, queue, told).next


class _Telling:
    """Gives the tokens so far to the front end, a piece whenever it asks for more; then asks the engine for
    the rest."""

    def __init__(self, client: Any, request: Any, queue: Any, told: Told) -> None:
        self._client = client
        self._request = request
        self._queue = queue
        self._state = client.output_processor.request_states[request.request_id]
        self._pieces = deque(told)
        self._tokens = [token for piece in told for token in piece]

    def next(self) -> Any:
        while self._pieces:
            self._tell(self._pieces.popleft())
            output = type(self._queue).get_nowait(self._queue)
            if output is not None:
                return output
        del self._queue.get_nowait
        if self._request.request_id not in self._client.output_processor.request_states:
            return None  # it was aborted
        self._state.is_prefilling = True
        # vLLM cancels this task when the answer is no longer read.
        self._queue._input_stream_task = asyncio.ensure_future(self._go_on())
        return None

    def _tell(self, piece: Sequence[int]) -> None:
        from vllm.v1.engine import EngineCoreOutput, FinishReason

        is_full = not self._pieces and len(self._tokens) >= self._request.sampling_params.max_tokens
        reason = FinishReason.LENGTH if is_full else None
        output = EngineCoreOutput(self._request.request_id, list(piece), finish_reason=reason)
        self._client.output_processor.process_outputs([output], time.monotonic())

    async def _go_on(self) -> None:
        try:
            await self._client.engine_core.add_request_async(self._rest())
        except Exception as error:
            self._queue.put(error)

    def _rest(self) -> Any:
        """The request for what is left of the answer."""
        rest, length = copy(self._request), len(self._tokens)
        params = rest.sampling_params.clone()
        params.max_tokens -= length
        params.min_tokens = max(0, params.min_tokens - length)
        rest.sampling_params = params
        rest.prompt_token_ids = [*rest.prompt_token_ids, *self._tokens]
        return rest
