"""Settings of API keys."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen
from serve_app.settings.sign_in import OidcSettings


class KeySettings(Frozen):
    """Where API keys come from. At least one source; all may be used together."""

    keys_file: str | None = Field(
        default=None,
        description="File of salted hashes (scripts/make_key.py); a change takes effect within a second.",
    )
    keys_env: str | None = Field(
        default=None,
        description="Variable that holds `tenant=key,tenant=key`; a key has 20 to 256 characters.",
    )
    accounts: bool = Field(
        default=False,
        description="Keys are made at run time (`promptly keys`, `/admin/keys`), see the section `accounts`. "
        "The admin token, which `make serve` prints, opens `/admin`, so that the first key can be made.",
    )

    oidc: OidcSettings | None = Field(
        default=None, description="Tokens of an OpenID Connect provider, beside keys or alone."
    )

    @model_validator(mode="after")
    def _has_source(self) -> Self:
        if self.keys_file is None and self.keys_env is None and not self.accounts and self.oidc is None:
            raise ValueError("give `keys_file`, `keys_env`, `accounts: true`, `oidc`, or several of them")
        return self
