"""Settings of an external OpenAI-compatible server."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from serve_app.settings.base import Frozen
from serve_app.settings.paths import ENGINE_PATHS, REALTIME, VENDOR_PATHS, plain_paths

HEALTH_PATHS = {"vllm": "/health", "openai": "/v1/models"}
"""vLLM, SGLang and TGI have a health path; every OpenAI-compatible server has a list of models."""

SPACE = re.compile(r"\s")


class UpstreamSettings(Frozen):
    """A server that Promptly does not manage (vLLM, SGLang, TensorRT-LLM, TGI, llama.cpp, a vendor), used in
    addition to the managed replicas."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$", description="Its name in `x-served-by` and logs.")
    url: str = Field(description="Base URL as an OpenAI client takes it, such as `http://host:8000/v1`.")
    kind: Literal["openai", "vllm"] = Field(
        default="openai",
        description="`vllm` gives token ids: its interrupted streams are continued, and it continues others.",
    )
    cache_salt: bool | None = Field(
        default=None,
        description="Send it the tenant's `cache_salt`, so that its prefix cache reveals nothing about "
        "other tenants; default: yes for `vllm`. Vendors refuse fields that they do not know.",
    )
    key_env: str | None = Field(
        default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Variable that holds its API key."
    )
    model: str | None = Field(default=None, description="Its own name for the model; default: `id`.")
    priority: int = Field(
        default=0, ge=0, description="Managed replicas have 0; higher numbers serve when lower ones are full."
    )
    weight: float = Field(default=1.0, gt=0, description="Share of the requests among equals.")
    max_requests: int = Field(default=64, ge=1, description="Most requests at once, from all gateways.")
    health_path: str | None = Field(
        default=None, pattern=r"^/", description="Default: `/health` (vllm), `/v1/models` (openai)."
    )
    health_period_s: float = Field(default=5.0, gt=0)
    health_timeout_s: float = Field(
        default=2.0,
        gt=0,
        description="A later answer is ignored. Three time-outs in a row without a byte of any other answer "
        "are a failure.",
    )
    idle_connection_s: float = Field(
        default=3.0,
        ge=0,
        description="How long an unused connection is kept; keep it below the server's own (uvicorn: 5 s).",
    )
    paths: tuple[str, ...] | None = Field(
        default=None,
        strict=False,
        description="Paths that clients may use. Default for `openai`: stateless paths that store nothing "
        f"under our key: {', '.join(f'`{path}`' for path in VENDOR_PATHS)}; for `vllm`: those of managed "
        f"replicas without `{REALTIME}`, which is listed for a server whose model has it.",
    )

    @field_validator("paths")
    @classmethod
    def _are_paths(cls, paths: tuple[str, ...] | None) -> tuple[str, ...] | None:
        plain_paths(paths)
        return paths

    @field_validator("url")
    @classmethod
    def _is_base_url(cls, url: str) -> str:
        parts = urlsplit(url)
        is_server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if not is_server or parts.query or parts.fragment or SPACE.search(url):
            raise ValueError("expected a base URL such as `http://host:8000/v1`")
        if parts.username is not None or parts.password is not None:
            raise ValueError("a URL holds no key: name a variable in `key_env`")
        return url.rstrip("/")

    @property
    def sends_cache_salt(self) -> bool:
        return self.kind == "vllm" if self.cache_salt is None else self.cache_salt

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def api_prefix(self) -> str:
        """The prefix that replaces `/v1` in a path; `/v1` if the URL has no path."""
        return urlsplit(self.url).path or "/v1"

    @property
    def offered_paths(self) -> frozenset[str]:
        """The paths that clients may use."""
        if self.paths is not None:
            return frozenset(self.paths)
        return (
            frozenset(ENGINE_PATHS).difference({REALTIME}) if self.kind == "vllm" else frozenset(VENDOR_PATHS)
        )

    @property
    def health_target(self) -> str:
        """The path of its health check; the default is below its own prefix."""
        if self.health_path is not None:
            return self.health_path
        return HEALTH_PATHS[self.kind].replace("/v1", self.api_prefix, 1)
