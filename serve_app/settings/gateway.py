"""Settings of the gateways."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.base import Frozen
from serve_app.settings.policies import known_policy

HOST_NAME = re.compile(r"\*|(\*\.)?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]")
ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


class GatewaySettings(Frozen):
    """The HTTP front: CPU only, scaled by the number of replicas. It is long because each setting has its
    description beside it."""

    replicas: int = Field(
        default=1,
        ge=1,
        description="How many gateways; with `max_replicas` the fewest. Left out: as many as the engines' "
        "GPUs are expected to need, and up to twice as many while their event loops are late.",
    )
    max_replicas: int | None = Field(
        default=None,
        ge=1,
        description="The most gateways. Above `replicas`, one is added while event loops are late by their "
        "own work, and one is stopped after ten minutes in which fewer are enough.",
    )
    max_loop_lag_ms: float = Field(
        default=50.0,
        gt=0,
        description="How late gateways' event loops may be, on average over all gateways and five seconds, "
        "before there are more of them (docs/operations.md).",
    )
    num_cpus: float = Field(default=0.1, ge=0)
    fleet_poll_s: float = Field(default=0.25, gt=0, description="How often engines are asked for their load.")
    routing: str = Field(default="least_wait", description="Routing policy.")
    session_header: str = Field(
        default="x-session-id",
        pattern=r"^[a-z0-9-]{1,64}$",
        description="Header that names the request's session, in lower case. Others that clients send are "
        "known too: see docs/http.md.",
    )
    session_affinity: bool = Field(
        default=True,
        description="Requests that name a session, and long prompts that name none, keep to the replica that "
        "has their earlier turns cached, while that costs no queue, under the policies `least_wait` and "
        "`prefix`.",
    )
    inline_system: Literal["system", "user", "first"] = Field(
        default="user",
        description="On `/v1/messages`, what becomes of system messages behind the first turn, which some "
        "agents append with every turn. `system`, `user`: they stay in place, so that the prompt keeps its "
        "prefix, as what they are (some chat templates refuse that) or as text of the user. `first`: they "
        "are joined to the first one, which changes the prefix.",
    )
    inline_system_clients: tuple[str, ...] = Field(
        default=("claude-cli/",),
        strict=False,
        description="Beginnings of `User-Agent` for which `inline_system` holds; for others it is `first`. "
        '`[""]`: for all.',
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
    keep_alive_s: float = Field(
        default=15.0,
        ge=0,
        description="Seconds between signs of life in a stream whose answer has not begun: SSE comments, "
        "`ping` events on `/v1/messages`. After the first, the status is 200 and an error is an event. "
        "0: none.",
    )
    share_prefixes: bool = Field(
        default=False,
        description="Let tenants share engines' prefix caches: faster where all begin with one long prompt, "
        "but the time to first token then reveals what others asked.",
    )
    console: bool = Field(
        default=True,
        description="Serve the console, a web page for people, at `/console`, and at `/` to browsers.",
    )
    recent_requests: int = Field(
        default=5000,
        ge=0,
        le=1_000_000,
        description="How many of the newest requests each gateway keeps for `/admin/requests` and the "
        "console, without any text; about 2 KB each. 0: none.",
    )
    metrics: bool = Field(
        default=True,
        description="Measure finished requests: `/admin/latency`, alerts, metrics on Ray's page and over "
        "OTLP, `/admin/requests`. Off, all of them stay empty; log lines have their own setting.",
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

    @model_validator(mode="after")
    def _is_a_span(self) -> Self:
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ValueError(
                f"`max_replicas` ({self.max_replicas}) is smaller than `replicas` ({self.replicas}); "
                "expected at least `replicas`"
            )
        return self

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
