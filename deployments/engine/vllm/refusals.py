"""Makes vLLM tell its clients what their request did wrong, and forget requests that its engine never got.

Checked against vLLM 0.29. When it moves, look at ``AsyncLLM``:

- ``_add_request`` registers a request in ``output_processor``, then sends it to ``engine_core``. Where that
  fails, as msgpack does for integers that 64 bits do not hold, nobody takes it out again: it counts as
  running for ever, and ``max_num_seqs`` of such requests close a model for everybody. ``generate`` aborts
  only what ``add_request`` returned. Its pictures count as sent by then (``renderer.mm_processor_cache``) and
  were not: the next request with one of them would fail, whoever sends it.
- ``generate`` gives a last output with the finish reason ``error`` where a grammar cannot be compiled, or
  allows no token that the model has; vLLM makes "Internal server error" of it. Other reasons are loads of a
  KV connector, and media that the engine no longer has: such engines and requests are left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

FAILED = "error"
NO_NUMBER = "An integer of the request is out of range: it must be between -2**63 and 2**64 - 1."
NO_TEXT = (
    "The engine cannot follow the grammar, schema or pattern that the request asks for, or the parameters of "
    "its tools: no text of this model's tokens fits it, or the engine's grammar compiler refuses it."
)


class Refusals:
    """One ``AsyncLLM`` whose requests fail as their clients' fault where they are."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._add, self._generate = client._add_request, client.generate
        client._add_request = self._add_request
        if client.vllm_config.kv_transfer_config is None:
            client.generate = self.generate

    def generate(self, prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """No token of a request without a grammar passes here."""
        outputs: AsyncIterator[Any] = self._generate(prompt, sampling_params, *args, **kwargs)
        is_plain = sampling_params.structured_outputs is None or _has_media(prompt)
        return outputs if is_plain else _guided(outputs)

    async def _add_request(self, request: Any, prompt: Any, parent: Any, index: int, queue: Any) -> None:
        try:
            await self._add(request, prompt, parent, index, queue)
        except BaseException as error:
            name = request.request_id if parent is None else parent.request_id
            self._forget_media(request)
            await self._client.abort(name, internal=True)
            if isinstance(error, OverflowError):
                raise _refusal(NO_NUMBER) from error
            raise

    def _forget_media(self, request: Any) -> None:
        """The next request with the same sends them again."""
        cache = self._client.renderer.mm_processor_cache
        for feature in request.mm_features or ():
            if cache is not None:
                cache.invalidate(feature.mm_hash or feature.identifier)


def _has_media(prompt: Any) -> bool:
    """In each form that ``generate`` takes: rendered, not rendered, or made to a request of the engine's."""
    if isinstance(prompt, dict):
        return prompt.get("type") == "multimodal" or "multi_modal_data" in prompt
    return bool(getattr(prompt, "mm_features", None))


async def _guided(outputs: Any) -> AsyncIterator[Any]:
    try:
        async for output in outputs:
            if any(choice.finish_reason == FAILED for choice in output.outputs):
                raise _refusal(NO_TEXT)
            yield output
    finally:
        await outputs.aclose()


def _refusal(message: str) -> Exception:
    from vllm.exceptions import VLLMValidationError

    return VLLMValidationError(message)
