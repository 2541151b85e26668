"""What an arm changes of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from serve_app.settings.experiments import ArmSettings

LIMITS = ("max_tokens", "max_completion_tokens")
"""A chat's names of the same limit."""


@dataclass(frozen=True, slots=True)
class Change:
    """``fields`` replace those of a request; ``max_tokens`` bounds its answer."""

    model: str | None
    prompt_version: str | None
    fields: Mapping[str, Any]
    max_tokens: int | None

    @classmethod
    def of(cls, arm: ArmSettings) -> Self:
        fields = arm.settings.model_dump(exclude_none=True)
        limit = fields.pop("max_tokens", None)
        return cls(arm.model, arm.prompt_version, fields, limit)

    @property
    def changes_fields(self) -> bool:
        return bool(self.fields) or self.max_tokens is not None

    def applied(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """``fields``: of a chat or text completion, already in their own types."""
        changed = {**fields, **self.fields}
        if self.max_tokens is not None:
            named = [name for name in LIMITS if isinstance(fields.get(name), int)]
            for name in named or LIMITS[:1]:
                changed[name] = min(fields.get(name) or self.max_tokens, self.max_tokens)
        return changed
