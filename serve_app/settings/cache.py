"""Settings of the response cache."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.base import Frozen
from serve_app.settings.qdrant import QdrantSettings

Strictness = Literal["strict", "balanced", "similarity"]
Sampled = Literal["never", "exact", "all"]


class CacheRule(Frozen):
    """The lifetime of some answers. A rule applies if all its conditions match."""

    ttl_s: float = Field(ge=0, description="Seconds; 0: such answers are not stored.")
    prompt: str | None = Field(default=None, description="Regular expression to find in the last user text.")
    model: str | None = None
    tenant: str | None = None
    tag: str | None = Field(default=None, description="One of the request's `x-cache-tags`.")
    headers: dict[str, str] = Field(
        default_factory=dict, description="Regular expressions to find in the headers of these names."
    )

    @field_validator("prompt")
    @classmethod
    def _prompt_compiles(cls, prompt: str | None) -> str | None:
        return None if prompt is None else _expression(prompt)

    @field_validator("headers")
    @classmethod
    def _headers_compile(cls, headers: dict[str, str]) -> dict[str, str]:
        return {name: _expression(pattern) for name, pattern in headers.items()}


class AskModelSettings(Frozen):
    """Ask the served model whether a stored answer fits if the verifier is not sure, or if only the guard
    `edit` objects, to one plain word of each text. It costs one token and one time to first token, and helps
    only with a model that can judge this."""

    from_score: float = Field(
        default=0.5, ge=0, le=1, description="Least verifier score at which the model is asked."
    )
    least_yes: float = Field(
        default=0.9,
        gt=0.5,
        lt=1,
        description="Least P(yes), against P(no), at which the stored answer is given.",
    )
    min_answer_tokens: int = Field(
        default=64,
        ge=1,
        description="Shorter stored answers are not asked about: a new answer is cheaper.",
    )
    timeout_ms: float = Field(default=1000.0, gt=0)


class CrossEncoderSettings(Frozen):
    """A sentence-transformers `CrossEncoder` with one output, which reads both questions together."""

    source: str = Field(description="Folder or hub id, such as `cross-encoder/quora-distilroberta-base`.")
    least: float = Field(
        default=0.9, ge=0, le=1, description="Least score of a hit; measure it with `scripts/eval_cache.py`."
    )
    device: str | None = Field(default=None, description="`cpu`, `cuda`…; default: a GPU if there is one.")


class CacheSettings(Frozen):
    """The exact and semantic tiers. docs/architecture.md says which requests share an entry. It is long
    because each setting has its bounds and its description."""

    store: Literal["qdrant_edge", "qdrant"] = Field(
        default="qdrant_edge", description="Embedded in a folder, or the server under `qdrant`."
    )
    qdrant: QdrantSettings | None = Field(default=None, description="The server, for `store: qdrant`.")
    path: str | None = Field(
        default=None, description="Folder of the store; default: `semantic-cache` in the cache folder."
    )
    shards: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that look up and write, each for partitions of its own. An embedded store "
        "has a folder for each, with an equal part of `max_entries`, `max_bytes` and "
        "`max_entries_per_tenant`; with a server all use one collection.",
    )
    min_free_disk_bytes: int = Field(
        default=268_435_456,
        ge=0,
        description="Free disk space that an embedded store keeps. With less, nothing is stored; below a "
        "quarter of it the store is not used at all: a mapped file on a full disk kills the process. 0: off.",
    )
    decision: Strictness = Field(
        default="strict",
        description="How sure a semantic hit must be. `balanced` finds more paraphrases, and is wrong more "
        "often; `similarity` uses only a cosine threshold.",
    )
    threshold: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Least cosine similarity of a semantic hit; default: 0.70 before the shipped verifier "
        "(0.60 if `balanced`), 0.75 before `cross_encoder`, else 0.90.",
    )
    languages: tuple[str, ...] = Field(
        default=("en",),
        strict=False,
        description="Languages (ISO 639-1, such as `de`) of texts that near entries may answer. The shipped "
        "embedder, guards and verifier were measured for English only. `[]`: any. Without effect on "
        "`decision: similarity`.",
    )
    cross_encoder: CrossEncoderSettings | None = Field(
        default=None, description="Decides after the guards, instead of the shipped verifier."
    )
    ask_model: AskModelSettings | None = Field(
        default=None,
        description="Ask the served model about near entries if the verifier is not sure, or if only the "
        "guard `edit` objects, to one plain word of each text.",
    )
    max_error_rate: float | None = Field(
        default=None,
        gt=0,
        lt=0.5,
        description="Largest share of wrong answers among semantic hits, learned by comparing fresh "
        "answers with stored ones; default: no bound besides `decision`.",
    )
    encryption_key_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Variable that holds 32 random bytes in base64: questions and answers are stored "
        "encrypted, each tenant's with its own key; default: in plain text.",
    )
    sampled: Sampled = Field(
        default="never",
        description="What may answer a request that sets a `temperature` above 0 without a `seed`: `never`: "
        "only an engine, and nothing is stored; `exact`: also the stored answer to the same request; `all`: "
        "also a near one's.",
    )
    ttl_s: float = Field(default=86_400.0, gt=0, description="Lifetime of an entry, seconds.")
    stale_s: float = Field(
        default=0.0,
        ge=0,
        description="Seconds after its lifetime in which an entry still answers the identical request while "
        "a fresh answer is fetched.",
    )
    partition_by: tuple[Literal["user", "safety_identifier"], ...] = Field(
        default=(),
        strict=False,
        description="Fields of the body that keep the answers of a tenant's own users apart; default: its "
        "users share.",
    )
    rules: list[CacheRule] = Field(
        default_factory=list, description="Lifetimes other than `ttl_s`; the first matching rule decides."
    )
    max_entries: int = Field(default=100_000, ge=1)
    max_bytes: int | None = Field(
        default=None, ge=1_000_000, description="Size of all entries, texts and vectors; default: no limit."
    )
    max_entries_per_tenant: int | None = Field(
        default=None,
        ge=1,
        description="Default: no limit; when full, the tenant with the most entries loses some first.",
    )
    max_entry_bytes: int = Field(default=262_144, ge=1024)
    exact_entries: int = Field(default=4096, ge=1, description="Entries each gateway keeps in memory.")
    item_bytes: int = Field(
        default=67_108_864,
        ge=0,
        description="Memory of each gateway for vectors, scores and classes of single texts, bytes; 0: none "
        "are kept.",
    )
    lookup_budget_ms: float = Field(default=250.0, gt=0, description="A slower look-up counts as a miss.")
    call_timeout_s: float = Field(
        default=10.0, gt=0, description="For calls to the store, and embeddings for it, outside look-ups."
    )
    race: bool = Field(
        default=True,
        description="Look-up and engine start together while the fleet has room; the first to answer wins.",
    )
    join: bool = Field(default=True, description="Identical requests in flight share one stream.")
    keep_beginnings: bool = Field(
        default=True,
        description="With `join` and several gateways: the cache's process holds the tokens that streamed "
        "chats have so far, in memory, so that a client whose gateway was killed asks again and finds them.",
    )
    breaker_failures: int = Field(default=5, ge=1)
    breaker_cooldown_s: float = Field(default=5.0, gt=0)
    write_queue: int = Field(default=256, ge=1, description="Answers waiting to be stored, per gateway.")
    num_cpus: float = Field(default=0.1, ge=0, description="Of each shard.")

    @model_validator(mode="after")
    def _server_is_named(self) -> Self:
        if (self.store == "qdrant") != (self.qdrant is not None):
            raise ValueError("`qdrant` (a server) goes with `store: qdrant`, and only with it")
        return self

    @property
    def is_shared(self) -> bool:
        """Whether all shards keep their entries in one store."""
        return self.store == "qdrant"

    @model_validator(mode="after")
    def _decision_has_guards(self) -> Self:
        if self.decision == "similarity" and (self.cross_encoder is not None or self.ask_model is not None):
            raise ValueError("`cross_encoder` and `ask_model` belong to `decision: strict` or `balanced`")
        return self


def _expression(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern
