"""Limits of requests, queues and times."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen

Weight = Annotated[float, Field(ge=0.01, le=100)]


class EmbeddingLimits(Frozen):
    """Bounds of texts to embed or score."""

    max_embedding_inputs: int = Field(
        default=2048,
        ge=1,
        description="Texts in one request to embed or score; OpenAI's own bound.",
    )
    max_embedding_characters: int = Field(
        default=1_048_576, ge=1, description="Characters (or token ids) of those texts together."
    )
    max_embedding_texts_per_tenant: int | None = Field(
        default=None,
        ge=1,
        description="Texts of one tenant, from all gateways together, that wait or run at the embedder; more "
        "are refused. Default: four times `max_embedding_inputs`.",
    )

    @property
    def texts_at_embedder(self) -> int:
        """How many texts one tenant may have at the embedder."""
        return self.max_embedding_texts_per_tenant or 4 * self.max_embedding_inputs

    @model_validator(mode="after")
    def _largest_request_fits(self) -> Self:
        if self.texts_at_embedder < self.max_embedding_inputs:
            raise ValueError(
                f"max_embedding_texts_per_tenant is {self.max_embedding_texts_per_tenant}; expected at least "
                f"max_embedding_inputs ({self.max_embedding_inputs}), or such a request is never embedded"
            )
        return self


class LimitSettings(EmbeddingLimits):
    """Bounds of one request, of one gateway's memory, or of all gateways together where it is said; times are
    seconds. It is long because each has its own range and its description."""

    max_body_bytes: int = Field(default=1_048_576, ge=1024)
    max_conversation_bytes: int = Field(
        default=33_554_432,
        ge=1024,
        description="Size of a body that carries a whole conversation with its images "
        "(`/v1/chat/completions`, `/v1/messages`, `/v1/responses`); Anthropic's own bound.",
    )
    max_held_bytes_per_tenant: int = Field(
        default=268_435_456,
        ge=1024,
        description="Bytes that one tenant's requests hold at once, until their answers end: bodies, and the "
        "stored items and fetched images that they refer to; by default eight of the largest bodies.",
    )
    max_upload_bytes: int = Field(
        default=26_214_400, ge=1024, description="Of an uploaded recording; OpenAI's and vLLM's own bound."
    )
    max_json_depth: int = Field(
        default=64,
        ge=8,
        le=512,
        description="Levels of objects and arrays in a body, and in JSON that a field holds as text.",
    )
    max_schema_bytes: int = Field(
        default=65_536,
        ge=1024,
        description="Size of each JSON schema, grammar or list of choices in a request.",
    )
    max_pattern_bytes: int = Field(
        default=4096, ge=16, description="Regular expressions of a request's schema, all together."
    )
    max_pattern_repeats: int = Field(
        default=1000,
        ge=1,
        description="Counted repetitions of a regular expression, multiplied out; for several expressions, "
        "the root of the sum of their squares.",
    )
    max_counted_properties: int = Field(
        default=100,
        ge=1,
        description="Properties of a schema's objects with `minProperties` or `maxProperties`, all together.",
    )
    max_schema_properties: int = Field(
        default=256, ge=1, description="Properties of one object in a schema; a grammar costs their square."
    )
    allow_grammars: bool = Field(
        default=True,
        description="Whether a request may bring a grammar of its own (`structured_outputs.grammar`, or one "
        "in a structural tag); schemas and regular expressions are not meant. An ambiguous one of 20 bytes "
        "slows the engine down for all, at each token (docs/security.md).",
    )
    max_n: int = Field(default=16, ge=1, description="Answers to one prompt (`n`, a beam's width).")
    max_prompts: int = Field(default=64, ge=1, description="Prompts in one request.")
    body_timeout_s: float = Field(
        default=60.0, gt=0, description="Time within which a request's body must arrive."
    )
    min_body_bytes_per_s: float = Field(
        default=1000.0,
        gt=0,
        description="Least average rate from the fifth second on; slower bodies are refused.",
    )
    max_bodies_per_tenant: int = Field(
        default=1024, ge=1, description="Request bodies that one tenant may send to a gateway at once."
    )
    max_concurrent_requests: int = Field(
        default=2048,
        ge=1,
        description="Requests that wait or run at all gateways together, for all models; counted after their "
        "body arrived. Each gateway may have what it needs of it.",
    )
    max_concurrent_requests_per_tenant: int | None = Field(
        default=None,
        ge=1,
        description="Of one tenant at all gateways, where there are keys of several; requests that join one "
        "in flight count. Each gateway has the same part of it as of `max_concurrent_requests`. Default: "
        "half of that.",
    )
    max_queued_requests: int = Field(
        default=512,
        ge=0,
        description="Requests that may wait for room ahead of one, per model, at all gateways together.",
    )
    tenant_weights: dict[Annotated[str, Field(min_length=1)], Weight] = Field(
        default={},
        description="Shares of tenants that wait for the same model, by tenant: one with 2 gets twice the "
        "tokens of one with 1, which all others have.",
    )
    max_queue_wait_s: float = Field(
        default=10.0,
        gt=0,
        description="A request that would wait longer by the measured rate is refused at once, any other "
        "after this time.",
    )
    request_timeout_s: float = Field(default=600.0, gt=0, description="Deadline of a request that sets none.")
    first_token_timeout_s: float = Field(
        default=120.0, gt=0, description="An attempt without a first byte after this time has failed."
    )
    between_tokens_timeout_s: float = Field(
        default=60.0, gt=0, description="A stream that pauses longer counts as dead."
    )
    quarantine_s: float = Field(
        default=60.0,
        ge=0,
        description="A request that broke two engines (a closed connection, 500) is refused for this time; "
        "0: never. If several requests broke an engine together, only one that breaks another is refused.",
    )
    max_event_bytes: int = Field(
        default=8_388_608,
        ge=1024,
        description="Size of one event of an engine's stream: a longer one counts as a failure. A prompt's "
        "token ids come in one event, some 7 bytes each.",
    )
    max_answer_bytes: int = Field(
        default=268_435_456,
        ge=1024,
        description="Size of an answer that is not streamed: a longer one counts as the engine's failure.",
    )
    max_stream_buffer_bytes: int = Field(
        default=4_194_304,
        ge=262_144,
        description="Bytes of a shared stream kept for joiners and slow readers.",
    )

    @property
    def share_of_requests(self) -> int:
        """How many of ``max_concurrent_requests`` one of several tenants may have."""
        half = max(1, self.max_concurrent_requests // 2)
        return self.max_concurrent_requests_per_tenant or half
