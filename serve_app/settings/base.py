"""What every settings value has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable; refuses keys it does not know; no silent conversion such as "8" to 8."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())
