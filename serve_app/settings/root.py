"""The whole of an application's settings."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from serve_app.routing import POLICIES
from serve_app.settings.base import Frozen
from serve_app.settings.cache import CacheSettings
from serve_app.settings.engine import ModelSettings


class KeySettings(Frozen):
    """Where API keys come from. At least one source; both may be used."""

    keys_file: str | None = Field(default=None, description="File of salted hashes (scripts/make_key.py).")
    keys_env: str | None = Field(default=None, description="Variable that holds `tenant=key,tenant=key`.")

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
    routing: str = Field(default="least_loaded", description="Routing policy.")

    @field_validator("routing")
    @classmethod
    def _known_policy(cls, name: str) -> str:
        if name not in POLICIES:
            raise ValueError(f"unknown routing policy; expected one of: {', '.join(sorted(POLICIES))}")
        return name


class LimitSettings(Frozen):
    """Bounds per gateway replica."""

    max_body_bytes: int = Field(default=1_048_576, ge=1024)
    max_concurrent_requests: int = Field(default=512, ge=1)
    request_timeout_s: float = Field(default=600.0, gt=0, description="Deadline when a request names none.")


class EmbedderSettings(Frozen):
    """The sentence-transformers model behind the cache and ``/v1/embeddings``."""

    id: str = Field(min_length=1, description="The name clients use in `model`.")
    source: str = Field(min_length=1)
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    max_batch_size: int = Field(default=32, ge=1)
    batch_wait_ms: float = Field(default=0.0, ge=0, description="How long a first text waits for company.")
    threads: int = Field(default=2, ge=1, description="torch threads of a CPU embedder.")
    replicas: int = Field(default=1, ge=1)
    num_cpus: float = Field(default=0.2, ge=0)


class Settings(Frozen):
    """The ``args`` of a Promptly application."""

    models: tuple[ModelSettings, ...] = Field(strict=False)
    embedder: EmbedderSettings | None = None
    cache: CacheSettings | None = None
    auth: Literal["none", "loopback"] | KeySettings = "loopback"
    gateway: GatewaySettings = GatewaySettings()
    limits: LimitSettings = LimitSettings()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.models:
            raise ValueError("`models` is empty: give at least one model")
        names = [model.id for model in self.models]
        if self.embedder is not None:
            names.append(self.embedder.id)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"model id given twice: {', '.join(twice)}")
        if self.cache is not None and self.embedder is None:
            raise ValueError("`cache` needs an `embedder`")
        return self
