"""The base class of all settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable settings. Unknown keys are errors, and types are not converted (such as "8" to 8)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())
