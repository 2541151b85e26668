"""Settings of the listeners through which the parts of the application call each other."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen

ANY_PORT = range(1)
"""Port 0: the kernel chooses a free one."""


class NetworkSettings(Frozen):
    """Between the nodes of a cluster: where replicas listen for calls of gateways. Every listener is on its
    node's own address, and both ends of a connection prove that they know its secret."""

    min_port: int | None = Field(
        default=None,
        ge=1024,
        le=65535,
        description="The first port of the range in which replicas listen, for firewalls between the nodes. "
        "Default: any free port.",
    )
    max_port: int | None = Field(
        default=None,
        ge=1024,
        le=65535,
        description="The last port of the range. A node needs one for each replica of an engine (each rank, "
        "with data parallelism), the embedder, the cache, `responses`, `accounts` and `feedback` and "
        "each of several gateways that runs there, and as many again while an update replaces them.",
    )

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if (self.min_port is None) != (self.max_port is None):
            missing = "min_port" if self.min_port is None else "max_port"
            raise ValueError(f"`{missing}` is missing: give both ends of the range, or none")
        if self.min_port is not None and self.max_port is not None and self.min_port > self.max_port:
            raise ValueError(f"`min_port` ({self.min_port}) is greater than `max_port` ({self.max_port})")
        return self

    @property
    def private_ports(self) -> range:
        if self.min_port is None or self.max_port is None:
            return ANY_PORT
        return range(self.min_port, self.max_port + 1)
