"""Settings of a vLLM engine.

Names are vLLM's own where it has one. What is checked here needs no file and no vLLM; what needs the model's
files is in ``deployments.engine.checks``, what needs vLLM's argument list in
``deployments.engine.vllm.arguments``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.base import Frozen
from serve_app.settings.disaggregation import DisaggregationSettings, wrong_disaggregation

NEEDS_DRAFT_MODEL = frozenset({"draft_model", "eagle", "eagle3", "medusa"})
READS_THE_TEXT = frozenset({"ngram", "suffix"})
"""Speculation methods without a model."""

DEPTH_CAN_CHANGE = frozenset({"ngram", "draft_model", "eagle", "eagle3", "mtp"})
"""Methods that draft another number of tokens from step to step; vLLM 0.29's proposers of ``suffix`` and
``medusa`` assert that it is always ``num_speculative_tokens``."""

OWNED_BY_PROMPTLY = frozenset({"model", "served_model_name", "host", "port", "api_key", "root_path"})
"""vLLM arguments that other settings or the builder decide."""

OWN_SETTING: Mapping[str, str] = {
    "speculative_config": "speculation",
    "spec_method": "speculation.method",
    "spec_model": "speculation.model",
    "spec_tokens": "speculation.num_speculative_tokens",
    "enable_lora": "lora",
    "lora_modules": "lora.adapters",
    "max_loras": "lora.max_loras",
    "max_lora_rank": "lora.max_lora_rank",
    "max_cpu_loras": "lora.max_cpu_loras",
    "kv_offloading_size": "kv_offload.size_gib",
    "kv_offloading_backend": "kv_offload.backend",
}
"""vLLM arguments that have a setting of another name."""

OWN_SPECULATION_SETTING: Mapping[str, str] = {
    "tensor_parallel_size": "draft_tensor_parallel_size",
    "num_speculative_tokens_per_batch_size": "depth_by_load",
}

QUANTIZATIONS = (
    "awq",
    "auto_awq",
    "awq_marlin",
    "gptq",
    "auto_gptq",
    "gptq_marlin",
    "fp8",
    "fp8_per_tensor",
    "fp8_per_channel",
    "fp8_per_block",
    "mxfp8",
    "compressed-tensors",
    "modelopt",
    "modelopt_fp4",
    "modelopt_mxfp8",
    "modelopt_mixed",
    "nvfp4_per_token",
    "mxfp4",
    "gpt_oss_mxfp4",
    "experts_int8",
    "int8_per_channel_weight_only",
    "moe_wna16",
    "torchao",
    "inc",
    "quark",
    "humming",
    "deepseek_v4_fp8",
    "online",
    "fbgemm_fp8",
    "fp_quant",
    "gguf",
)
"""vLLM 0.29's methods, and ``gguf``, which a plug-in adds."""

IN_THE_CHECKPOINT = "is a property of the weights: quantize the model first (scripts/quantize.py), then"
QUANTIZATION_HINTS: Mapping[str, str] = {
    "int8": f"INT8 W8A8 {IN_THE_CHECKPOINT} use 'compressed-tensors' or leave this out",
    "w8a8": f"INT8 W8A8 {IN_THE_CHECKPOINT} use 'compressed-tensors' or leave this out",
    "int8_w8a8": f"INT8 W8A8 {IN_THE_CHECKPOINT} use 'compressed-tensors' or leave this out",
    "nvfp4": f"NVFP4 {IN_THE_CHECKPOINT} use 'modelopt_fp4' or 'compressed-tensors', or leave this out",
    "int4": f"INT4 {IN_THE_CHECKPOINT} use 'awq', 'gptq' or 'compressed-tensors', or leave this out",
}

CPU_KV_CACHE_DTYPES = frozenset({"auto", "fp8", "fp8_e4m3", "fp8_e5m2"})

HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")
"""As it stands in a URL, without a port."""

KvCacheDtype = Literal[
    "auto",
    "float16",
    "bfloat16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "fp8_inc",
    "fp8_ds_mla",
    "fp8_per_token_head",
    "int8_per_token_head",
    "int4_per_token_head",
    "nvfp4",
    "nvfp4_4over6",
    "turboquant_k8v4",
    "turboquant_4bit_nc",
    "turboquant_k3v4_nc",
    "turboquant_3bit_nc",
]
CudagraphMode = Literal["none", "piecewise", "full", "full_decode_only", "full_and_piecewise"]
LoraRank = Literal[1, 8, 16, 32, 64, 128, 256, 320, 512]

MAX_LORAS_BY_DEFAULT = 8


FORMER_ANSWERS = "suffix_decoding_max_cached_requests"
"""How many answers vLLM's ``suffix`` drafts from, beside the request's own text: 0 is none."""


class DepthStep(Frozen):
    """From this many running requests on, draft this many tokens."""

    requests: int = Field(ge=1)
    tokens: int = Field(ge=0, le=32, description="0: no speculation.")


class SpeculationSettings(Frozen):
    """Speculative decoding (vLLM's ``speculative_config``).

    ``ngram`` and ``suffix`` propose tokens from the text itself, ``mtp`` uses the model's own extra
    layers, the others need ``model``.
    """

    method: Literal["ngram", "suffix", "draft_model", "eagle", "eagle3", "mtp", "medusa"]
    num_speculative_tokens: int = Field(ge=1, le=32, description="Most tokens drafted at a step: the depth.")
    model: str | None = Field(default=None, description="Hub id or folder of the draft model or head.")
    draft_tensor_parallel_size: int | None = Field(
        default=None, ge=1, description="1 or the engine's `tensor_parallel_size`, which is the default."
    )
    prompt_lookup_max: int | None = Field(default=None, ge=1, description="Longest n-gram to match (ngram).")
    prompt_lookup_min: int | None = Field(default=None, ge=1, description="Shortest n-gram to match (ngram).")
    use_heterogeneous_vocab: bool | None = Field(
        default=None,
        description="Let a draft model with another vocabulary draft the tokens that both have. Costs a mask "
        "over the draft's logits and two look-ups a step, and acceptance wherever a token is missing.",
    )
    depth_by_load: tuple[DepthStep, ...] | None = Field(
        default=None,
        strict=False,
        min_length=1,
        description="Depth by the number of running requests; the last one holds for all above.",
    )
    guard: bool = Field(
        default=True,
        description="Draft less, or nothing, while measured acceptance makes drafting a loss. Without effect "
        "where `data_parallel_size` is above 1, or `options.scheduler_cls` names another scheduler.",
    )
    share_drafts: bool = Field(
        default=False,
        description="With API keys, let `suffix` draft from what all tenants were answered: more is "
        "accepted, and the speed of an answer then tells what others got. Without keys it always does.",
    )
    options: dict[str, Any] | None = Field(
        default=None, description="Any other key of vLLM's `speculative_config`."
    )

    @property
    def drafts_from_answers(self) -> bool:
        """Whether it drafts for one request from what others were answered."""
        return self.method == "suffix" and (self.options or {}).get(FORMER_ANSWERS) != 0

    def without_former_answers(self) -> Self:
        """Drafts come from the request's own prompt and answer alone."""
        return self.model_copy(update={"options": {**(self.options or {}), FORMER_ANSWERS: 0}})

    @model_validator(mode="after")
    def _method_fits(self) -> Self:
        if self.method in NEEDS_DRAFT_MODEL and self.model is None:
            raise ValueError(f"speculation method {self.method!r} needs `model`")
        if self.method in READS_THE_TEXT and self.model is not None:
            raise ValueError(
                f"speculation method {self.method!r} takes no `model`: it looks tokens up in the prompt"
            )
        if self.share_drafts and self.method != "suffix":
            raise ValueError("`share_drafts` is for method 'suffix': the others draft for each request alone")
        if self.use_heterogeneous_vocab and self.method != "draft_model":
            raise ValueError("`use_heterogeneous_vocab` is for method 'draft_model': leave it out")
        return self

    @model_validator(mode="after")
    def _ngram_fits(self) -> Self:
        least, most = self.prompt_lookup_min, self.prompt_lookup_max
        if self.method != "ngram" and (least is not None or most is not None):
            raise ValueError("`prompt_lookup_min` and `prompt_lookup_max` are for method 'ngram'")
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"`prompt_lookup_min` ({least}) is greater than `prompt_lookup_max` ({most}); "
                f"expected at most {most}"
            )
        return self

    @model_validator(mode="after")
    def _depths_fit(self) -> Self:
        if self.depth_by_load is None:
            return self
        if self.method not in DEPTH_CAN_CHANGE:
            raise ValueError(
                f"`depth_by_load` is for the methods {', '.join(sorted(DEPTH_CAN_CHANGE))}: "
                f"vLLM's {self.method!r} always drafts the same number"
            )
        requests = [step.requests for step in self.depth_by_load]
        if requests[0] != 1 or requests != sorted(set(requests)):
            raise ValueError("the `requests` of `depth_by_load` must begin at 1 and grow")
        most = max(step.tokens for step in self.depth_by_load)
        if most > self.num_speculative_tokens:
            raise ValueError(
                f"`depth_by_load` asks for {most} tokens, more than `num_speculative_tokens` "
                f"({self.num_speculative_tokens}); expected at most {self.num_speculative_tokens}"
            )
        return self

    @model_validator(mode="after")
    def _options_are_others(self) -> Self:
        taken = {name: name for name in type(self).model_fields} | dict(OWN_SPECULATION_SETTING)
        _refuse_taken(self.options or {}, taken)
        return self


class KvOffloadSettings(Frozen):
    """Keep evicted KV blocks in host memory: a prefix that comes back is copied instead of computed."""

    size_gib: float = Field(gt=0, description="Host memory of one engine, GiB, over all its devices.")
    backend: Literal["native", "lmcache"] = "native"


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


class EngineSettings(Frozen):
    """One vLLM engine. Unset values are vLLM's own defaults."""

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
        description="Whole experts on each device (`tensor_parallel_size` × `data_parallel_size` of them).",
    )
    placement: Literal["pack", "strict_pack", "spread", "strict_spread"] = Field(
        default="pack",
        description="An engine's devices: `pack` on few nodes, `strict_pack` on one, `spread` over many, "
        "`strict_spread` one on each.",
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    max_model_len: int | None = Field(default=None, ge=16, description="Context length in tokens.")
    max_num_seqs: int | None = Field(default=None, ge=1, description="Requests that run at once.")
    max_num_batched_tokens: int | None = Field(
        default=None, ge=1, description="Tokens of one step: the budget that prompts and answers share."
    )
    enable_chunked_prefill: bool | None = Field(
        default=None, description="Long prompts go in over several steps, beside running answers."
    )
    long_prefill_token_threshold: int | None = Field(
        default=None, ge=1, description="Most tokens of one prompt in a step."
    )
    scheduling_policy: Literal["fcfs", "priority"] | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    quantization: str | None = Field(
        default=None, description="Default: what the weights say. `fp8` quantizes while loading."
    )
    kv_cache_dtype: KvCacheDtype | None = None
    kv_offload: KvOffloadSettings | None = None
    disaggregation: DisaggregationSettings | None = None
    cpu_kv_cache_gib: int | None = Field(default=None, ge=1, description="KV cache of a CPU engine, GiB.")
    enable_prefix_caching: bool = True
    allowed_media_domains: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Hosts from which the engine may fetch images, audio and video that a request names by "
        "URL; default: none, media come as `data:` URLs. An engine can reach what its clients cannot.",
    )
    enforce_eager: bool = False
    cudagraph_mode: CudagraphMode | None = None
    optimization_level: Literal[0, 1, 2, 3] | None = Field(
        default=None, description="vLLM's -O: 0 starts fastest, 2 runs fastest."
    )
    performance_mode: Literal["balanced", "interactivity", "throughput"] | None = Field(
        default=None, description="`interactivity`: kernels and graphs for few requests at low latency."
    )
    structured_outputs_backend: (
        Literal["auto", "xgrammar", "guidance", "outlines", "lm-format-enforcer"] | None
    ) = None
    lora: LoraSettings | None = None
    enable_sleep_mode: bool = Field(default=False, description="An idle engine can give back GPU memory.")
    speculation: SpeculationSettings | None = None
    options: dict[str, Any] = Field(default_factory=dict, description="Any other vLLM engine argument.")
    env: dict[str, str] = Field(default_factory=dict, description="Environment of the engine's processes.")
    num_cpus: float = Field(default=1.0, ge=0, description="Logical CPUs of the replica beside its workers.")
    warm_up: bool = True
    warm_up_budget_s: float = Field(
        default=10.0,
        ge=0,
        description="Larger prompts and batches are warmed up only as far as this time allows.",
    )

    @field_validator("allowed_media_domains")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not HOST.fullmatch(host):
                raise ValueError(f"{host!r}: expected a host such as `images.example.com`, in lower case")
        return hosts

    @field_validator("quantization")
    @classmethod
    def _known_quantization(cls, name: str | None) -> str | None:
        if name is None or name in QUANTIZATIONS:
            return name
        if name.lower() in QUANTIZATION_HINTS:
            raise ValueError(QUANTIZATION_HINTS[name.lower()])
        close = difflib.get_close_matches(name.lower(), QUANTIZATIONS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown quantization; {hint}expected one of: {', '.join(QUANTIZATIONS)}")

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
        _refuse_taken(self.options, taken | dict(OWN_SETTING))
        return self

    @model_validator(mode="after")
    def _parallel_sizes_fit(self) -> Self:
        ranks = self.tensor_parallel_size * self.data_parallel_size
        if self.enable_expert_parallel and ranks == 1:
            raise ValueError(
                "`enable_expert_parallel` spreads experts over `tensor_parallel_size` × `data_parallel_size` "
                "devices, which is 1: set one of them to 2 or more, or leave it out"
            )
        draft = self.speculation.draft_tensor_parallel_size if self.speculation else None
        if draft not in (None, 1, self.tensor_parallel_size):
            expected = " or ".join(str(size) for size in sorted({1, self.tensor_parallel_size}))
            raise ValueError(
                f"`speculation.draft_tensor_parallel_size` is {draft}; expected {expected} "
                "(1 or `tensor_parallel_size`)"
            )
        if self.data_parallel_size > 1 and self.speculation and self.speculation.depth_by_load:
            raise ValueError(
                "`speculation.depth_by_load` needs `data_parallel_size: 1`: ranks could choose different "
                "depths and wait for each other for ever"
            )
        return self

    @model_validator(mode="after")
    def _batch_fits(self) -> Self:
        for problem in self._wrong_batch():
            raise ValueError(problem)
        return self

    def _wrong_batch(self) -> Iterator[str]:
        """As in vLLM's ``SchedulerConfig``; what is unset is vLLM's to fit."""
        tokens, context = self.max_num_batched_tokens, self.max_model_len
        chunk, whole = self.long_prefill_token_threshold, self.enable_chunked_prefill is False
        if tokens is not None and self.max_num_seqs is not None and tokens < self.max_num_seqs:
            yield f"`max_num_batched_tokens` ({tokens}) is less than `max_num_seqs` ({self.max_num_seqs})"
        if whole and tokens is not None and context is not None and tokens < context:
            yield (
                f"`max_num_batched_tokens` ({tokens}) is less than `max_model_len` without chunked prefill; "
                f"expected at least {context}, or `enable_chunked_prefill: true`"
            )
        if whole and chunk is not None:
            yield "`long_prefill_token_threshold` needs chunked prefill: leave one of the two out"
        if chunk is not None and context is not None and chunk > context:
            yield f"`long_prefill_token_threshold` ({chunk}) is above `max_model_len` ({context}); use less"
        if self.lora is not None and self.speculation is not None:
            yield from self._wrong_lora_batch(self.speculation.num_speculative_tokens)

    def _wrong_lora_batch(self, depth: int) -> Iterator[str]:
        tokens, requests = self.max_num_batched_tokens, self.max_num_seqs
        if tokens is not None and requests is not None and tokens < requests * (depth + 1):
            yield (
                f"`max_num_batched_tokens` ({tokens}) is too small for `lora` with speculation; expected at "
                f"least `max_num_seqs` × (`num_speculative_tokens` + 1) = {requests * (depth + 1)}"
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

    @property
    def num_devices(self) -> int:
        """Of one data-parallel rank."""
        return self.tensor_parallel_size * self.pipeline_parallel_size


def _refuse_taken(options: Mapping[str, Any], taken: Mapping[str, str]) -> None:
    """``taken``: an option's name (with ``_``) to the setting that decides it. vLLM reads ``-`` as ``_``."""
    wrong = sorted(name for name in options if name.replace("-", "_") in taken)
    if not wrong:
        return
    settings = [taken[name.replace("-", "_")] for name in wrong]
    others = [own for name, own in zip(wrong, settings, strict=True) if own != name]
    hint = f" (use {', '.join(f'`{own}`' for own in others)})" if others else ""
    raise ValueError(f"`options` may not set {', '.join(wrong)}: Promptly has its own setting for it{hint}")
