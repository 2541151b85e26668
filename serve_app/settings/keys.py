"""Settings of API keys."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen


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
