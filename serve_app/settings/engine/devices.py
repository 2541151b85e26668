"""Settings of an engine's devices: their kind and number, and how the model is split over them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen
from serve_app.settings.nodes import Resource


class DeviceSettings(Frozen):
    """The part of an engine's settings about its devices."""

    accelerator: Literal["cpu", "gpu"] = "gpu"
    accelerator_type: str | None = Field(default=None, description="Ray's accelerator type, such as H100.")
    tensor_parallel_size: int = Field(default=1, ge=1)
    pipeline_parallel_size: int = Field(default=1, ge=1)
    data_parallel_size: int = Field(
        default=1,
        ge=1,
        description="Ranks of data-parallel attention, for models with experts; others scale by `replicas`.",
    )
    enable_expert_parallel: bool = Field(
        default=False,
        description="Put whole experts on each of `tensor_parallel_size` × `data_parallel_size` devices.",
    )
    placement: Literal["pack", "strict_pack", "spread", "strict_spread"] = Field(
        default="pack",
        description="An engine's devices: `pack` on few nodes, `strict_pack` on one, `spread` over many, "
        "`strict_spread` one on each.",
    )

    nodes: Resource | None = Field(
        default=None,
        description="One of Ray's own resources, as in `nodes`: the engine runs only on nodes that have it. "
        "For clusters where it would also fit nodes that are for another one; `promptly manifest` sets it.",
    )

    @model_validator(mode="after")
    def _experts_have_devices(self) -> Self:
        ranks = self.tensor_parallel_size * self.data_parallel_size
        if self.enable_expert_parallel and ranks == 1:
            raise ValueError(
                "`enable_expert_parallel` spreads experts over `tensor_parallel_size` × `data_parallel_size` "
                "devices, which is 1: set one of them to 2 or more, or leave it out"
            )
        return self

    @property
    def num_devices(self) -> int:
        """The devices of one data-parallel rank."""
        return self.tensor_parallel_size * self.pipeline_parallel_size
