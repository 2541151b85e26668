"""Settings of compilation and CUDA graphs."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen

CudagraphMode = Literal["none", "piecewise", "full", "full_decode_only", "full_and_piecewise"]


class CompilationSettings(Frozen):
    """The part of an engine's settings about compilation, which costs start-up time and saves time per
    step."""

    enforce_eager: bool = Field(
        default=False,
        description="Compile nothing, capture no graphs. On CPUs with AVX2 alone it also makes a 16-bit "
        "model [several times faster](engines-reference.md#16-bit-models-on-cpus-with-avx2-alone).",
    )
    cudagraph_mode: CudagraphMode | None = None
    optimization_level: Literal[0, 1, 2, 3] | None = Field(
        default=None, description="vLLM's -O: 0 starts fastest, 2 runs fastest."
    )
    performance_mode: Literal["balanced", "interactivity", "throughput"] | None = Field(
        default=None, description="`interactivity`: kernels and graphs for few requests at low latency."
    )

    @model_validator(mode="after")
    def _compilation_fits(self) -> Self:
        if self.enforce_eager and self.cudagraph_mode not in (None, "none"):
            raise ValueError(
                f"`enforce_eager` captures no graphs, but `cudagraph_mode` is {self.cudagraph_mode!r}: "
                "leave one of the two out"
            )
        if self.enforce_eager and self.optimization_level not in (None, 0):
            raise ValueError(
                f"`enforce_eager` compiles nothing, but `optimization_level` is {self.optimization_level}: "
                "leave one of the two out"
            )
        return self
