"""Memory of one device: weights, draft, activations, CUDA graphs, memory outside PyTorch, and the KV cache.

It follows vLLM 0.29. A worker may use ``gpu_memory_utilization`` of the device. It loads the weights, runs
one profile step with ``max_num_batched_tokens`` tokens and ``max_num_seqs`` logits, and gives the rest to the
KV cache (``Worker.determine_available_memory``). On a CPU the KV cache gets ``VLLM_CPU_KVCACHE_SPACE``, or
the rest of the engine's share of the machine (``CPUWorker.determine_available_memory``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from serve_app.planning.architecture import Architecture
from serve_app.planning.engine_request import GIB, EngineRequest
from serve_app.planning.hardware import Device
from serve_app.planning.quantization import KV_BYTES, KV_SCALE_BYTES
from serve_app.planning.weights import adapter_bytes, element_bytes, stage_layers

SAMPLER_BYTES = 38.3
"""Bytes per logit (``max_num_seqs`` x vocabulary) in the first runner's profile step, which warms up top-k
and top-p: the sorted copy, its int64 indices, probabilities and their sums. Fitted to the activation peaks
that llm-d published for vLLM 0.11 on an H100 (Llama-3.1-8B 4.76 GiB, Qwen3-0.6B 5.56, Qwen3-32B 5.64,
gpt-oss-20b 7.38, and Llama-3.3-70B-FP8 on two GPUs 4.84, all with 1,024 sequences), each within 1 %."""

SECOND_RUNNER_SAMPLER_BYTES = 6.0
"""The second runner's profile step samples without top-k and top-p: 16-bit logits and one float32 copy."""

NON_TORCH_GIB = 0.13
NON_TORCH_TP_GIB = 0.55
"""Memory with one device, and on each of several (NCCL, custom all-reduce); from the same measurements."""

GRAPH_BASE_GIB = 0.3
GRAPH_GIB = 0.005
"""CUDA graphs: start-up logs of vLLM 0.21 and later show 0.36 GiB for 16 graphs and 0.73 GiB for 86."""

MAX_GRAPH_TOKENS = 512
"""``max_cudagraph_capture_size``: twice ``max_num_seqs``, at most this."""

CPU_PROCESS_GIB = 1.0
"""Python, PyTorch and vLLM in a CPU worker, without weights and KV cache."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the fullest device; ``kv_bytes`` is left for the KV cache (negative: the model does not fit).

    ``usable`` is ``None`` if the device is unknown; ``kv_bytes`` is then ``None`` too, unless its size is
    set.
    """

    usable: float | None
    weights: float
    draft: float
    adapters: float
    activations: float
    graphs: float
    non_torch: float
    kv_per_token: float
    kv_bytes: float | None
    block_tokens: int

    @property
    def fixed(self) -> float:
        """Everything but the KV cache."""
        return self.weights + self.draft + self.adapters + self.activations + self.graphs + self.non_torch

    @property
    def blocks(self) -> int | None:
        """KV blocks; ``None`` if unknown."""
        if self.kv_bytes is None or not self.kv_per_token:
            return None
        return max(int(self.kv_bytes // (self.block_tokens * self.kv_per_token)), 0)

    @property
    def tokens(self) -> int | None:
        """Tokens that the KV cache holds, as vLLM logs them (``GPU KV cache size``)."""
        return None if self.blocks is None else self.blocks * self.block_tokens

    def requests(self, context: int) -> float | None:
        """Requests of ``context`` tokens that the KV cache holds at once (``Maximum concurrency``)."""
        if self.blocks is None or context <= 0:
            return None
        return self.blocks / -(-context // self.block_tokens)


def kv_bytes_per_token(architecture: Architecture, request: EngineRequest, ranks: int | None = None) -> float:
    """Bytes of K and V of one token in all layers of the fullest stage of one rank.

    ``2 x layers x max(1, kv_heads / ranks) x head_dim x bytes`` (vLLM's ``AttentionSpec.page_size_bytes``
    over its block size); with latent attention, one vector per layer that every rank holds. Sliding windows
    are not subtracted, so this is an upper bound.
    """
    ranks = request.tensor_parallel if ranks is None else ranks
    name = request.kv_cache_dtype
    size = KV_BYTES.get(name, element_bytes(architecture, request))
    latent = architecture.latent
    if latent is not None:
        # DeepSeek's own layout: 512 FP8 values, 16 bytes of scales, 64 bfloat16 values of RoPE.
        per_layer = 656.0 if name == "fp8_ds_mla" else (latent.rank + latent.rope_dim) * size
    else:
        heads = max(1, architecture.kv_heads // ranks)
        per_layer = 2 * heads * (architecture.head_dim * size + KV_SCALE_BYTES.get(name, 0.0))
    return per_layer * max(stage_layers(architecture.cached_layers, request.pipeline_parallel))


def activation_bytes(architecture: Architecture, request: EngineRequest, device: Device | None) -> float:
    """The peak of the profile step: the larger one of the forward pass and the sampler.

    Forward: the residual stream twice, and the widest of attention's and the MLP's (or the routed experts')
    intermediate values.
    """
    size = element_bytes(architecture, request)
    tokens, ranks = request.batched_tokens(device), request.tensor_parallel
    shape = architecture
    attention = 2 * (shape.heads + 2 * shape.kv_heads) * shape.head_dim / ranks
    experts = shape.experts
    wide = 3 * shape.mlp / ranks
    if experts is not None:
        wide = experts.active * (max(2 * experts.size / ranks, shape.hidden) + experts.size / ranks)
    forward = tokens * (2 * shape.hidden + max(attention, wide)) * size
    logit = SAMPLER_BYTES if request.first_runner or request.on_cpu else SECOND_RUNNER_SAMPLER_BYTES
    sampler = request.sequences(device) * shape.vocab * logit + tokens * shape.hidden * size
    return max(forward, sampler)


def graph_count(sequences: int, draft_tokens: int = 0) -> int:
    """CUDA graphs that vLLM captures: piecewise ones for 1, 2, 4, every 8 up to 256 and every 16 beyond
    (``VllmConfig._set_cudagraph_sizes``), and full ones for the sizes of a pure decode step."""
    largest = min(2 * sequences * (1 + draft_tokens), MAX_GRAPH_TOKENS)
    sizes: list[int] = [1, 2, 4, *range(8, 256, 8), *range(256, MAX_GRAPH_TOKENS + 1, 16)]
    decode = sequences * (1 + draft_tokens)
    pieces = sum(size <= largest for size in sizes)
    return pieces + sum(size <= min(decode, largest) for size in sizes)


def graph_bytes(request: EngineRequest, device: Device | None) -> float:
    """Memory of CUDA graphs; 0 in eager mode and on CPUs."""
    if not request.has_graphs:
        return 0.0
    tokens = 0 if request.draft is None else request.draft.tokens
    return (GRAPH_BASE_GIB + GRAPH_GIB * graph_count(request.sequences(device), tokens)) * GIB


def memory(
    architecture: Architecture,
    request: EngineRequest,
    device: Device | None,
    *,
    weights: float,
    draft: float = 0.0,
    draft_kv_per_token: float = 0.0,
) -> Memory:
    """Memory of one replica's fullest device. ``weights`` and ``draft`` are bytes on that device."""
    fixed = Memory(
        usable=_usable(request, device),
        weights=weights,
        draft=draft,
        adapters=adapter_bytes(architecture, request),
        activations=activation_bytes(architecture, request, device),
        graphs=graph_bytes(request, device),
        non_torch=_non_torch(request),
        kv_per_token=kv_bytes_per_token(architecture, request) + draft_kv_per_token,
        kv_bytes=None,
        block_tokens=request.block_tokens,
    )
    return replace(fixed, kv_bytes=_kv_bytes(fixed, request))


def _kv_bytes(fixed: Memory, request: EngineRequest) -> float | None:
    if request.kv_cache_bytes is not None:
        return float(request.kv_cache_bytes)
    return None if fixed.usable is None else fixed.usable - fixed.fixed


def _usable(request: EngineRequest, device: Device | None) -> float | None:
    """Bytes that one worker may take. The workers of a CPU engine share the machine."""
    if device is None:
        return None
    whole = device.memory_gib * GIB
    if request.kv_cache_bytes is not None:
        # If the KV cache's size is set, vLLM ignores the share: only the device is the limit.
        return whole / (request.devices if request.on_cpu else 1)
    return whole * request.utilization / (request.devices if request.on_cpu else 1)


def _non_torch(request: EngineRequest) -> float:
    if request.on_cpu:
        return CPU_PROCESS_GIB * GIB
    return (NON_TORCH_TP_GIB if request.tensor_parallel > 1 else NON_TORCH_GIB) * GIB
