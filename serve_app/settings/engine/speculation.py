"""Settings of speculative decoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen
from serve_app.settings.engine.options import refuse_taken

NEEDS_DRAFT_MODEL = frozenset({"draft_model", "eagle", "eagle3", "medusa"})
READS_THE_TEXT = frozenset({"ngram", "suffix"})
"""Speculation methods without a model."""

DEPTH_CAN_CHANGE = frozenset({"ngram", "draft_model", "eagle", "eagle3", "mtp"})
"""Methods that can draft a different number of tokens in each step; vLLM 0.29's proposers of ``suffix`` and
``medusa`` assert that it is always ``num_speculative_tokens``."""

OWN_SPECULATION_SETTING: Mapping[str, str] = {
    "tensor_parallel_size": "draft_tensor_parallel_size",
    "num_speculative_tokens_per_batch_size": "depth_by_load",
}

FORMER_ANSWERS = "suffix_decoding_max_cached_requests"
"""vLLM's option: from how many former answers ``suffix`` drafts, besides the request's own text; 0: none."""


class DepthStep(Frozen):
    """From this many running requests on, draft this many tokens."""

    requests: int = Field(ge=1)
    tokens: int = Field(ge=0, le=32, description="0: no speculation.")


class SpeculationSettings(Frozen):
    """Speculative decoding (vLLM's ``speculative_config``).

    ``ngram`` and ``suffix`` propose tokens from the text itself, ``mtp`` uses the model's own extra
    layers, the others need ``model``.
    """

    method: Literal["ngram", "suffix", "draft_model", "eagle", "eagle3", "mtp", "medusa"]
    num_speculative_tokens: int = Field(ge=1, le=32, description="Most tokens drafted in a step: the depth.")
    model: str | None = Field(default=None, description="Hub id or folder of the draft model or head.")
    draft_tensor_parallel_size: int | None = Field(
        default=None, ge=1, description="1 or the engine's `tensor_parallel_size`, which is the default."
    )
    prompt_lookup_max: int | None = Field(default=None, ge=1, description="Longest n-gram to match (ngram).")
    prompt_lookup_min: int | None = Field(default=None, ge=1, description="Shortest n-gram to match (ngram).")
    use_heterogeneous_vocab: bool | None = Field(
        default=None,
        description="Let a draft model with another vocabulary draft the tokens that both have. It costs a "
        "mask over the draft's logits and two look-ups per step, and missing tokens lower the acceptance.",
    )
    depth_by_load: tuple[DepthStep, ...] | None = Field(
        default=None,
        strict=False,
        min_length=1,
        description="Depth by the number of running requests; the last step holds for all larger numbers.",
    )
    guard: bool = Field(
        default=True,
        description="Draft less, or nothing, while measured acceptance makes drafting a loss. No effect if "
        "`data_parallel_size` is above 1, or `options.scheduler_cls` names another scheduler.",
    )
    share_drafts: bool = Field(
        default=False,
        description="With API keys, let `suffix` draft from the answers to all tenants: more drafts are "
        "accepted, but the speed of an answer then reveals what others got. Without keys it always does.",
    )
    options: dict[str, Any] | None = Field(
        default=None, description="Any other key of vLLM's `speculative_config`."
    )

    @property
    def drafts_from_answers(self) -> bool:
        """Whether it drafts for one request from the answers to others."""
        return self.method == "suffix" and (self.options or {}).get(FORMER_ANSWERS) != 0

    def without_former_answers(self) -> Self:
        """The settings with drafts from the request's own prompt and answer only."""
        return self.model_copy(update={"options": {**(self.options or {}), FORMER_ANSWERS: 0}})

    @model_validator(mode="after")
    def _method_fits(self) -> Self:
        if self.method in NEEDS_DRAFT_MODEL and self.model is None:
            raise ValueError(f"speculation method {self.method!r} needs `model`")
        if self.method in READS_THE_TEXT and self.model is not None:
            raise ValueError(
                f"speculation method {self.method!r} takes no `model`: it looks tokens up in the prompt"
            )
        if self.share_drafts and self.method != "suffix":
            raise ValueError(
                "`share_drafts` is for method 'suffix': other methods never use other requests' answers"
            )
        if self.use_heterogeneous_vocab and self.method != "draft_model":
            raise ValueError("`use_heterogeneous_vocab` is for method 'draft_model': leave it out")
        return self

    @model_validator(mode="after")
    def _ngram_fits(self) -> Self:
        least, most = self.prompt_lookup_min, self.prompt_lookup_max
        if self.method != "ngram" and (least is not None or most is not None):
            raise ValueError("`prompt_lookup_min` and `prompt_lookup_max` are for method 'ngram'")
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"`prompt_lookup_min` ({least}) is greater than `prompt_lookup_max` ({most}); "
                f"expected at most {most}"
            )
        return self

    @model_validator(mode="after")
    def _depths_fit(self) -> Self:
        if self.depth_by_load is None:
            return self
        if self.method not in DEPTH_CAN_CHANGE:
            raise ValueError(
                f"`depth_by_load` is for the methods {', '.join(sorted(DEPTH_CAN_CHANGE))}: "
                f"vLLM's {self.method!r} always drafts the same number"
            )
        requests = [step.requests for step in self.depth_by_load]
        if requests[0] != 1 or requests != sorted(set(requests)):
            raise ValueError("the `requests` of `depth_by_load` must begin at 1 and grow")
        most = max(step.tokens for step in self.depth_by_load)
        if most > self.num_speculative_tokens:
            raise ValueError(
                f"`depth_by_load` asks for {most} tokens, more than `num_speculative_tokens` "
                f"({self.num_speculative_tokens}); expected at most {self.num_speculative_tokens}"
            )
        return self

    @model_validator(mode="after")
    def _options_are_others(self) -> Self:
        taken = {name: name for name in type(self).model_fields} | dict(OWN_SPECULATION_SETTING)
        refuse_taken(self.options or {}, taken)
        return self
