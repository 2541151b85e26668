"""All settings of an application."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.auto_model import AutoModelSettings, wrong_names
from serve_app.settings.base import Frozen
from serve_app.settings.cache import CacheRule, CacheSettings
from serve_app.settings.engine import FORMER_ANSWERS, shared_side_channels
from serve_app.settings.model import ModelSettings
from serve_app.settings.policies import known_policy
from serve_app.settings.proxy import ProxySettings

HOST_NAME = re.compile(r"\*|(\*\.)?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]")
ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


class KeySettings(Frozen):
    """Where API keys come from. At least one source; both may be used."""

    keys_file: str | None = Field(
        default=None,
        description="File of salted hashes (scripts/make_key.py); a change takes effect within a second.",
    )
    keys_env: str | None = Field(
        default=None,
        description="Variable that holds `tenant=key,tenant=key`; a key has 20 to 256 characters.",
    )

    @model_validator(mode="after")
    def _has_source(self) -> Self:
        if self.keys_file is None and self.keys_env is None:
            raise ValueError("give `keys_file`, `keys_env` or both")
        return self


class GatewaySettings(Frozen):
    """The HTTP front: CPU only, scaled by the number of replicas."""

    replicas: int = Field(default=1, ge=1)
    num_cpus: float = Field(default=0.1, ge=0)
    fleet_poll_s: float = Field(default=0.25, gt=0, description="How often engines are asked for their load.")
    routing: str = Field(default="least_wait", description="Routing policy.")
    session_header: str = Field(
        default="x-session-id",
        pattern=r"^[a-z0-9-]{1,64}$",
        description="Header that names the session for the `session` policy, in lower case.",
    )
    failover: bool = Field(
        default=True,
        description="Another replica takes over when one fails, also in mid-stream. A request can turn "
        "it off with `x-failover: off`.",
    )
    max_attempts: int = Field(
        default=3,
        ge=1,
        description="Most members that one request is sent to; at most two if it breaks them.",
    )
    share_prefixes: bool = Field(
        default=False,
        description="Let tenants share engines' prefix caches: faster where all begin with one long prompt, "
        "but the time to first token then reveals what others asked.",
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Names (no port; `*.example.com`, `*`) that a request's `Host` may have besides the "
        "loopback names. Empty: only loopback names with `auth: loopback`, any name otherwise.",
    )
    cors_origins: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Origins whose pages may use this endpoint, such as `https://chat.example.com`; `*` is "
        "every page. Empty: none.",
    )

    @field_validator("routing")
    @classmethod
    def _known_policy(cls, name: str) -> str:
        return known_policy(name)

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts_without_port(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if HOST_NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r}: expected a host's name or address without port, or `*`")
        return names

    @field_validator("cors_origins")
    @classmethod
    def _whole_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        """They are compared exactly with what browsers send."""
        for origin in origins:
            if ORIGIN.fullmatch(origin) is None:
                raise ValueError(
                    f"{origin!r}: expected `scheme://host[:port]` in lower case without a path, or `*`"
                )
        return origins


class LimitSettings(Frozen):
    """Bounds per gateway replica; times are seconds."""

    max_body_bytes: int = Field(default=1_048_576, ge=1024)
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
    max_n: int = Field(default=16, ge=1, description="Answers to one prompt (`n`, a beam's width).")
    max_prompts: int = Field(default=64, ge=1, description="Prompts in one request.")
    max_embedding_inputs: int = Field(
        default=2048,
        ge=1,
        description="Texts in one request to embed or score; OpenAI's own bound.",
    )
    max_embedding_characters: int = Field(
        default=1_048_576, ge=1, description="Characters (or token ids) of those texts together."
    )
    body_timeout_s: float = Field(
        default=60.0, gt=0, description="Time within which a request's body must arrive."
    )
    min_body_bytes_per_s: float = Field(
        default=1000.0,
        gt=0,
        description="Least average rate from the fifth second on; slower bodies are refused.",
    )
    max_bodies_per_tenant: int = Field(
        default=1024, ge=1, description="Request bodies that one tenant may send at once."
    )
    max_concurrent_requests: int = Field(
        default=2048,
        ge=1,
        description="Requests that wait or run, for all models; counted after their body arrived.",
    )
    max_queued_requests: int = Field(
        default=512, ge=0, description="Requests that may wait for room ahead of one, per model."
    )
    max_queue_wait_s: float = Field(
        default=10.0, gt=0, description="A request that would wait longer is refused at once."
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


class EmbedderSettings(Frozen):
    """The sentence-transformers model behind the cache and ``/v1/embeddings``."""

    id: str = Field(min_length=1, description="The name clients use in `model`.")
    source: str = Field(min_length=1)
    backend: Literal["auto", "torch", "onnx"] = Field(
        default="auto",
        description="`onnx` is faster on a CPU and does not run on a GPU; `auto` is `onnx` if that can run.",
    )
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    max_batch_size: int = Field(default=32, ge=1)
    batch_wait_ms: float = Field(
        default=0.0, ge=0, description="How long a text waits for others to form a batch."
    )
    threads: int = Field(default=2, ge=1, description="Threads of a CPU embedder.")
    recent_texts: int = Field(default=4096, ge=0, description="Embeddings that each replica remembers.")
    replicas: int = Field(default=1, ge=1)
    num_cpus: float = Field(default=0.2, ge=0)

    @property
    def chosen_backend(self) -> Literal["torch", "onnx"]:
        """The backend, with ``auto`` resolved. Both backends give the same vectors."""
        if self.backend != "auto":
            return self.backend
        return "onnx" if self.device == "cpu" and self.dtype in ("float32", "int8") else "torch"

    @model_validator(mode="after")
    def _backend_has_dtype(self) -> Self:
        if self.backend == "onnx" and (self.device != "cpu" or self.dtype not in ("float32", "int8")):
            raise ValueError("backend onnx runs on device cpu with dtype float32 or int8")
        if self.backend == "torch" and self.dtype == "int8":
            raise ValueError("dtype int8 needs backend onnx")
        return self


class Settings(Frozen):
    """The ``args`` of a Promptly application."""

    models: tuple[ModelSettings, ...] = Field(strict=False)
    auto_models: tuple[AutoModelSettings, ...] = Field(default=(), strict=False)
    embedder: EmbedderSettings | None = None
    cache: CacheSettings | None = None
    auth: Literal["none", "loopback"] | KeySettings = "loopback"
    gateway: GatewaySettings = GatewaySettings()
    proxy: ProxySettings = ProxySettings()
    limits: LimitSettings = LimitSettings()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.models:
            raise ValueError("`models` is empty: give at least one model")
        embedder = None if self.embedder is None else self.embedder.id
        for problem in wrong_names(self.models, self.auto_models, embedder):
            raise ValueError(problem)
        for problem in shared_side_channels(self._side_channel_ports):
            raise ValueError(problem)
        if self.cache is not None and self.embedder is None:
            raise ValueError("`cache` needs an `embedder`")
        return self

    @model_validator(mode="after")
    def _drafts_are_shared_on_purpose(self) -> Self:
        for model in self.models:
            speculation = None if model.engine is None else model.engine.speculation
            if speculation is None or speculation.share_drafts or not isinstance(self.auth, KeySettings):
                continue
            if speculation.drafts_from_answers and FORMER_ANSWERS in (speculation.options or {}):
                raise ValueError(
                    f"model {model.id!r}: `engine.speculation.options.{FORMER_ANSWERS}` lets tenants draft "
                    "from each other's answers: with keys, set `engine.speculation.share_drafts: true`, or "
                    "leave it out"
                )
        return self

    @property
    def _side_channel_ports(self) -> dict[str, int]:
        """The ports of the models with disaggregated prefill, by id."""
        apart = [(model.id, model.engine.disaggregation) for model in self.models if model.engine is not None]
        return {name: settings.side_channel_port for name, settings in apart if settings is not None}

    @property
    def engine_models(self) -> tuple[ModelSettings, ...]:
        """The models as their engines run them. With keys there may be several tenants, so engines do not
        draft for one request from the answers to others, unless ``share_drafts`` allows it."""
        if not isinstance(self.auth, KeySettings):
            return self.models
        return tuple(_drafting_alone(model) for model in self.models)

    @property
    def cache_races(self) -> bool:
        return self.cache is not None and self.cache.race

    @property
    def cache_joins(self) -> bool:
        return self.cache is not None and self.cache.join

    @property
    def cache_with_models(self) -> CacheSettings | None:
        """The cache's settings with each model's own lifetime as a rule after all others."""
        if self.cache is None:
            return None
        own = [
            CacheRule(ttl_s=model.cache_ttl_s, model=name)
            for model in self.models
            if model.cache_ttl_s is not None
            for name in (model.id, *model.adapters)
        ]
        return self.cache.model_copy(update={"rules": [*self.cache.rules, *own]})


def _drafting_alone(model: ModelSettings) -> ModelSettings:
    speculation = None if model.engine is None else model.engine.speculation
    if model.engine is None or speculation is None or speculation.share_drafts:
        return model
    if not speculation.drafts_from_answers:
        return model
    engine = model.engine.model_copy(update={"speculation": speculation.without_former_answers()})
    return model.model_copy(update={"engine": engine})
