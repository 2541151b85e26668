"""Settings of vLLM's scheduler: requests that run at once, and tokens per step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen


class SchedulingSettings(Frozen):
    """The part of an engine's settings about batches and steps."""

    max_model_len: int | None = Field(default=None, ge=16, description="Context length in tokens.")
    max_num_seqs: int | None = Field(default=None, ge=1, description="Requests that run at once.")
    max_num_batched_tokens: int | None = Field(
        default=None, ge=1, description="Tokens per step, shared by prompts and answers."
    )
    enable_chunked_prefill: bool | None = Field(
        default=None,
        description="Long prompts are prefilled over several steps, together with running answers.",
    )
    long_prefill_token_threshold: int | None = Field(
        default=None, ge=1, description="Most tokens of one prompt in a step."
    )
    scheduling_policy: Literal["fcfs", "priority"] | None = None

    @model_validator(mode="after")
    def _batch_fits(self) -> Self:
        for problem in self._wrong_batch():
            raise ValueError(problem)
        return self

    def _wrong_batch(self) -> Iterator[str]:
        """The same checks as in vLLM's ``SchedulerConfig``. vLLM fits unset values itself."""
        tokens, context = self.max_num_batched_tokens, self.max_model_len
        chunk, whole = self.long_prefill_token_threshold, self.enable_chunked_prefill is False
        if tokens is not None and self.max_num_seqs is not None and tokens < self.max_num_seqs:
            yield f"`max_num_batched_tokens` ({tokens}) is less than `max_num_seqs` ({self.max_num_seqs})"
        if whole and tokens is not None and context is not None and tokens < context:
            yield (
                f"`max_num_batched_tokens` ({tokens}) is less than `max_model_len` without chunked prefill; "
                f"expected at least {context}, or `enable_chunked_prefill: true`"
            )
        if whole and chunk is not None:
            yield "`long_prefill_token_threshold` needs chunked prefill: leave one of the two out"
        if chunk is not None and context is not None and chunk > context:
            yield f"`long_prefill_token_threshold` ({chunk}) is above `max_model_len` ({context}); use less"
