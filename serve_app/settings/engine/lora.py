"""Settings of LoRA adapters."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen

LoraRank = Literal[1, 8, 16, 32, 64, 128, 256, 320, 512]

MAX_LORAS_BY_DEFAULT = 8


class LoraSettings(Frozen):
    """LoRA adapters, each a model that clients can name."""

    adapters: dict[str, str] = Field(min_length=1, description="Name to hub id or folder.")
    max_loras: int | None = Field(
        default=None,
        ge=1,
        description=f"Adapters in one batch; default: as many as are given, at most {MAX_LORAS_BY_DEFAULT}.",
    )
    max_lora_rank: LoraRank = 16
    max_cpu_loras: int | None = Field(default=None, ge=1, description="Adapters kept in host memory.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if any(not name for name in self.adapters):
            raise ValueError("an adapter in `adapters` has no name")
        if self.max_cpu_loras is not None and self.max_cpu_loras < self.batch_loras:
            raise ValueError(
                f"`max_cpu_loras` ({self.max_cpu_loras}) is less than `max_loras` ({self.batch_loras}); "
                f"expected at least {self.batch_loras}"
            )
        return self

    @property
    def batch_loras(self) -> int:
        """How many different adapters one batch may hold."""
        return self.max_loras or min(len(self.adapters), MAX_LORAS_BY_DEFAULT)
