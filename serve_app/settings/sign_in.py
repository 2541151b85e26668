"""Settings of sign-in: the tokens of an OpenID Connect provider, beside API keys."""

from __future__ import annotations

import re
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from serve_app.settings.base import Frozen

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"
]
"""Signatures by a private key only: with `none` or an HMAC, who can check a token could make one."""

RoleName = Literal["user", "viewer", "tenant_admin", "admin"]
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
CLAIM = "A path such as `realm_access.roles` leads into objects; a name with a `/` or `:` is taken whole."


class ConsoleSignInSettings(Frozen):
    """Sign-in to the console, by the authorization code flow with PKCE. Register
    `<url>/sign-in/callback` as the redirect URI."""

    client_id: str = Field(min_length=1, max_length=256)
    client_secret_env: str | None = Field(
        default=None,
        min_length=1,
        description="Variable with the client's secret, which only gateways get. Unset: a public client.",
    )
    url: str = Field(
        description="Address of this application as browsers see it, such as `https://llm.example.com`, with "
        "its route prefix if it has one. `http` is for loopback names only."
    )
    scopes: tuple[str, ...] = Field(default=("openid", "profile", "email"), strict=False)
    session_s: float = Field(
        default=3600.0, gt=0, le=86_400, description="How long a session lasts; then one signs in again."
    )

    @field_validator("url")
    @classmethod
    def _is_safe(cls, url: str) -> str:
        return safe_url(url).rstrip("/")

    @field_validator("scopes")
    @classmethod
    def _asks_for_an_identity(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in scopes or not all(SCOPE.fullmatch(each) for each in scopes):
            raise ValueError("expected names without spaces, `openid` among them")
        return scopes


class OidcSettings(Frozen):
    """Tokens of an OpenID Connect provider (`Authorization: Bearer <JWT>`), and what their claims mean."""

    issuer: str = Field(
        description="The provider, exactly as tokens name it in `iss`. Its keys are found by "
        "`/.well-known/openid-configuration`."
    )
    audiences: tuple[str, ...] = Field(
        strict=False, description="A token is for this application if its `aud` has one of these."
    )
    jwks_url: str | None = Field(
        default=None, description="Where the provider's keys are, instead of where its configuration says."
    )
    algorithms: tuple[Algorithm, ...] = Field(
        default=("RS256", "PS256", "ES256", "EdDSA", "Ed25519"),
        strict=False,
        description="Signatures that are accepted.",
    )
    leeway_s: float = Field(
        default=30.0, ge=0, le=300, description="How far the provider's clock may differ from this one's."
    )
    max_token_bytes: int = Field(
        default=8192, ge=512, le=65_536, description="A longer token is refused unread."
    )
    tenant: str | None = Field(default=None, description="The tenant of everyone who signs in.")
    tenant_claim: str | None = Field(
        default=None,
        description=f"The claim that names the tenant; a token without it is refused. {CLAIM}",
    )
    tenants: dict[str, str] = Field(
        default={},
        description="Values of `tenant_claim` and the tenants that they mean; others are refused. Exactly "
        "one must fit. Empty: the value is the tenant's name.",
    )
    user_claim: str = Field(default="sub", description=f"The claim that names the user. {CLAIM}")
    models_claim: str | None = Field(
        default=None, description=f"The claim that lists the models that may be used. {CLAIM} Unset: all."
    )
    role_claim: str | None = Field(default=None, description=f"The claim that `roles` reads. {CLAIM}")
    roles: dict[str, RoleName] = Field(
        default={},
        description="Values of `role_claim` (a group, say) and the role that each gives. The one with most "
        "rights counts.",
    )
    default_role: RoleName = Field(default="user", description="The role where no value of `roles` fits.")
    refresh_s: float = Field(default=300.0, ge=1, description="How often the provider's keys are fetched.")
    min_refresh_s: float = Field(
        default=10.0,
        ge=0.1,
        description="Least time between two fetches, also where tokens name keys that are not known.",
    )
    keep_keys_s: float = Field(
        default=86_400.0,
        gt=0,
        description="How long the keys that are known count while the provider cannot be reached.",
    )
    timeout_s: float = Field(default=5.0, gt=0, le=60, description="For one answer of the provider.")
    console: ConsoleSignInSettings | None = Field(
        default=None, description="Unset: the console asks for a key."
    )

    @field_validator("issuer", "jwks_url")
    @classmethod
    def _is_safe(cls, url: str | None) -> str | None:
        return None if url is None else safe_url(url)

    @field_validator("audiences", "algorithms")
    @classmethod
    def _is_not_empty(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if not values or not all(values):
            raise ValueError("expected at least one, and none that is empty")
        return values

    @model_validator(mode="after")
    def _names_a_tenant(self) -> Self:
        if (self.tenant is None) == (self.tenant_claim is None):
            raise ValueError("give either `tenant` or `tenant_claim`")
        if self.tenants and self.tenant_claim is None:
            raise ValueError("`tenants` needs `tenant_claim`")
        if self.roles and self.role_claim is None:
            raise ValueError("`roles` needs `role_claim`")
        for name in (self.tenant, *self.tenants.values()):
            if name is not None and TENANT.fullmatch(name) is None:
                raise ValueError(f"{name!r} is no tenant's name: expected {TENANT.pattern}")
        return self


def safe_url(url: str) -> str:
    """Raises: ValueError: anyone on the way could answer in the place of who is asked."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    if not host or not is_safe or parts.username is not None or parts.query or parts.fragment:
        raise ValueError("expected `https://host[:port][/path]` (`http` for loopback names only)")
    if not url.isascii() or any(sign in url for sign in " \\\"'<>\r\n\t"):
        raise ValueError("expected a URL in ASCII without spaces and quotes")
    return url
