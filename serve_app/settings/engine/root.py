"""All settings of a vLLM engine: the subjects together, and the checks between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.engine.compilation import CompilationSettings
from serve_app.settings.engine.devices import DeviceSettings
from serve_app.settings.engine.disaggregation import DisaggregationSettings, wrong_disaggregation
from serve_app.settings.engine.formats import FormatSettings
from serve_app.settings.engine.lora import LoraSettings
from serve_app.settings.engine.memory import MemorySettings
from serve_app.settings.engine.options import OWN_SETTING, OWNED_BY_PROMPTLY, refuse_taken
from serve_app.settings.engine.parsers import (
    REASONING_PARSERS,
    TOOL_PARSERS,
    ParserSettings,
    wrong_parser,
)
from serve_app.settings.engine.scheduling import SchedulingSettings
from serve_app.settings.engine.speculation import SpeculationSettings

CPU_KV_CACHE_DTYPES = frozenset({"auto", "fp8", "fp8_e4m3", "fp8_e5m2"})

HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")
"""A host as in a URL, without a port."""


class EngineSettings(
    ParserSettings, CompilationSettings, MemorySettings, SchedulingSettings, FormatSettings, DeviceSettings
):  # docs/settings.md lists the last base first, as pydantic does
    """One vLLM engine. Unset values are vLLM's own defaults."""

    disaggregation: DisaggregationSettings | None = None
    allowed_media_domains: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Hosts from which the engine may fetch images, audio and video that a request names by "
        "URL; default: none, so media must be `data:` URLs. An engine can reach hosts that clients cannot.",
    )
    structured_outputs_backend: (
        Literal["auto", "xgrammar", "guidance", "outlines", "lm-format-enforcer"] | None
    ) = None
    lora: LoraSettings | None = None
    speculation: SpeculationSettings | None = None
    options: dict[str, Any] = Field(default_factory=dict, description="Any other vLLM engine argument.")
    env: dict[str, str] = Field(default_factory=dict, description="Environment of the engine's processes.")
    num_cpus: float = Field(
        default=1.0, ge=0, description="Logical CPUs of the replica, besides those of its workers."
    )
    warm_up: bool = True
    warm_up_budget_s: float = Field(
        default=10.0,
        ge=0,
        description="Larger prompts and batches are warmed up only as far as this time allows; on CPUs with "
        "`enforce_eager` none are.",
    )

    @field_validator("allowed_media_domains")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not HOST.fullmatch(host):
                raise ValueError(f"{host!r}: expected a host such as `images.example.com`, in lower case")
        return hosts

    @model_validator(mode="after")
    def _device_fits(self) -> Self:
        problems = self._wrong_on_cpu() if self.accelerator == "cpu" else self._wrong_on_gpu()
        for problem in problems:
            raise ValueError(problem)
        return self

    def _wrong_on_cpu(self) -> Iterator[str]:
        if self.accelerator_type is not None:
            yield "`accelerator_type` names a GPU, but `accelerator` is 'cpu'"
        if self.placement in ("spread", "strict_spread"):
            yield f"`placement: {self.placement}` is for GPUs: a CPU engine has one node; use 'pack'"
        if self.kv_cache_dtype is not None and self.kv_cache_dtype not in CPU_KV_CACHE_DTYPES:
            known = ", ".join(sorted(CPU_KV_CACHE_DTYPES))
            yield f"`kv_cache_dtype: {self.kv_cache_dtype}` needs a GPU; on a CPU expected one of: {known}"
        if self.kv_offload is not None:
            yield "`kv_offload` moves blocks from a GPU to host memory; a CPU engine has `cpu_kv_cache_gib`"
        if self.cudagraph_mode not in (None, "none"):
            yield "`cudagraph_mode` needs a GPU: leave it out"
        if self.enable_sleep_mode:
            yield "`enable_sleep_mode` gives back GPU memory: leave it out, or use `accelerator: gpu`"

    def _wrong_on_gpu(self) -> Iterator[str]:
        if self.cpu_kv_cache_gib is not None:
            yield "`cpu_kv_cache_gib` is for `accelerator: cpu`; use `gpu_memory_utilization`"

    @model_validator(mode="after")
    def _disaggregation_fits(self) -> Self:
        if self.disaggregation is None:
            return self
        problems = wrong_disaggregation(
            self.disaggregation,
            on_cpu=self.accelerator == "cpu",
            offloads=self.kv_offload is not None,
            ranks=self.data_parallel_size,
            options=self.options,
        )
        for problem in problems:
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _options_are_others(self) -> Self:
        taken = {name: name for name in OWNED_BY_PROMPTLY | type(self).model_fields.keys()}
        refuse_taken(self.options, taken | dict(OWN_SETTING))
        return self

    @model_validator(mode="after")
    def _parsers_are_known(self) -> Self:
        for setting, name, known in (
            ("tools", self.tools, TOOL_PARSERS),
            ("reasoning", self.reasoning, REASONING_PARSERS),
        ):
            problem = wrong_parser(setting, name, known, self.options)
            if problem is not None:
                raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _speculation_fits(self) -> Self:
        if self.speculation is None:
            return self
        for problem in _wrong_speculation(self, self.speculation):
            raise ValueError(problem)
        return self


def _wrong_speculation(engine: EngineSettings, speculation: SpeculationSettings) -> Iterator[str]:
    draft = speculation.draft_tensor_parallel_size
    if draft not in (None, 1, engine.tensor_parallel_size):
        expected = " or ".join(str(size) for size in sorted({1, engine.tensor_parallel_size}))
        yield (
            f"`speculation.draft_tensor_parallel_size` is {draft}; expected {expected} "
            "(1 or `tensor_parallel_size`)"
        )
    if engine.data_parallel_size > 1 and speculation.depth_by_load:
        yield (
            "`speculation.depth_by_load` needs `data_parallel_size: 1`: ranks could choose different "
            "depths and wait for each other forever"
        )
    if engine.lora is not None:
        yield from _wrong_lora_batch(engine, speculation.num_speculative_tokens)


def _wrong_lora_batch(engine: EngineSettings, depth: int) -> Iterator[str]:
    tokens, requests = engine.max_num_batched_tokens, engine.max_num_seqs
    if tokens is not None and requests is not None and tokens < requests * (depth + 1):
        yield (
            f"`max_num_batched_tokens` ({tokens}) is too small for `lora` with speculation; expected at "
            f"least `max_num_seqs` × (`num_speculative_tokens` + 1) = {requests * (depth + 1)}"
        )
