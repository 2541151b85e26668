"""Settings of the proxy (HAProxy) in front of the gateways."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen


class ProxySettings(Frozen):
    """Settings of every HAProxy that Serve runs. Serve's own proxy (plain `serve run`) ignores them."""

    header_timeout_s: int = Field(
        default=10, ge=1, description="Time in which a request's headers must arrive (408)."
    )
    max_connections_per_source: int = Field(
        default=2048,
        ge=0,
        description="Open connections from one address; 0: no limit. A load balancer is one address.",
    )
    tls_certificate: str | None = Field(
        default=None, description="PEM file with the server's certificate and chain: HTTPS instead of HTTP."
    )
    tls_key: str | None = Field(
        default=None, description="PEM file with its private key, if that is a separate file."
    )
    tls_client_ca: str | None = Field(
        default=None, description="PEM file: only clients with a certificate of these authorities connect."
    )

    @model_validator(mode="after")
    def _certificate_first(self) -> Self:
        if self.tls_certificate is None and (self.tls_key or self.tls_client_ca):
            raise ValueError("`tls_key` and `tls_client_ca` need `tls_certificate`")
        return self
