"""Settings of the gateways' traces. Whether there are any, and where they go, the standard ``OTEL_*``
variables say."""

from __future__ import annotations

from pydantic import Field

from serve_app.settings.base import Frozen


class TraceSettings(Frozen):
    """Which traces are kept although `OTEL_TRACES_SAMPLER`, or a caller's `traceparent`, leaves them out: the
    spans of the gateway, of the engines that Promptly starts, and of its other deployments, which hold theirs
    until the request has ended."""

    keep_failures: bool = Field(
        default=True, description="Keep the traces of requests that failed for reasons not the client's."
    )
    keep_slowest: int = Field(
        default=10,
        ge=0,
        le=1000,
        description="Keep the traces of at least this many of the slowest requests to models, per minute and "
        "gateway. 0: none.",
    )
