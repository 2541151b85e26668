"""Expected times of one engine by a roofline model: the slower of memory and arithmetic decides.

Williams, Waterman, Patterson: "Roofline: an insightful visual performance model" (CACM 52(4), 2009), applied
to transformers as in Pope et al., "Efficiently scaling transformer inference" (MLSys 2023). A decode step
reads the weights once, and the KV cache of each request. A token costs two operations per active weight, and
``4 x layers x heads x head_dim`` per token of its context.
"""

from __future__ import annotations

from dataclasses import dataclass

from serve_app.planning.architecture import Architecture
from serve_app.planning.engine_request import EngineRequest
from serve_app.planning.hardware import Device
from serve_app.planning.memory import kv_bytes_per_token
from serve_app.planning.quantization import family
from serve_app.planning.weights import Groups, active_parameters, element_bytes

LINK_LATENCY_S = {True: 30e-6, False: 10e-6}
"""One all-reduce of a few kilobytes over PCIe (``True``) or NVLink; an order of magnitude, not measured."""

PCIE_GB_S = 64.0

LAYER_S = 20e-6
"""Fixed time of a layer on a GPU: about eight kernels of a CUDA graph. An order of magnitude, not
measured."""


EXPERT_LAYER_S = 60e-6
"""Fixed time of a layer's experts on a GPU, beside :data:`LAYER_S`: the router, sorting tokens by expert, and
grouped multiplications too small to fill the device. Fitted, with :data:`EXPERT_BANDWIDTH`, to published
decode times; ``scripts/benchmarks/published.py`` names them."""

EXPERT_BANDWIDTH = 0.75
"""Share of the bandwidth of dense weights that reading the chosen experts reaches."""

UNCERTAINTY = 0.25
"""Relative error that these published times allow to expect."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Share of the vendor's peak that real kernels reach. These are assumptions; replace them by your own
    measurement. Compute: a published measurement (a 2,083-token prompt of a 70B model on four H100 took
    0.189 s) reached 0.4 of the peak. Bandwidth: what large copies reach."""

    bandwidth: float = 0.75
    compute: float = 0.45


USUAL = Efficiency()


@dataclass(frozen=True, slots=True)
class Speed:
    """The terms of the times, per device. Rates are those reached, not the peaks.

    ``expert_bytes`` are the weights of all experts; a step reads only the experts that its tokens chose.
    """

    dense_bytes: float
    expert_bytes: float
    expert_share: float
    kv_per_token: float
    bytes_per_s: float
    flops_per_token: float
    flops_per_context: float
    flops_per_s: float
    fixed_s: float
    link_s_per_token: float

    def decode_step_s(self, batch: float, context: float) -> float:
        """One step that generates a token for each of ``batch`` requests with ``context`` tokens each."""
        read = self.dense_bytes + self._expert_bytes(batch) + batch * context * self.kv_per_token
        work = batch * (self.flops_per_token + context * self.flops_per_context)
        return max(read / self.bytes_per_s, work / self.flops_per_s) + self._other_s(batch)

    def prefill_s(self, tokens: float) -> float:
        """A prompt of ``tokens`` that runs alone. Attention is causal, so a token sees half the prompt on
        average."""
        if tokens <= 0:
            return 0.0
        read = self.dense_bytes + self._expert_bytes(tokens)
        work = tokens * (self.flops_per_token + tokens / 2 * self.flops_per_context)
        return max(read / self.bytes_per_s, work / self.flops_per_s) + self._other_s(tokens)

    def _expert_bytes(self, tokens: float) -> float:
        """Bytes of the experts that this many tokens choose independently, counted as the dense bytes that
        take as long."""
        unused: float = (1.0 - self.expert_share) ** tokens
        return self.expert_bytes * (1.0 - unused) / EXPERT_BANDWIDTH

    def _other_s(self, tokens: float) -> float:
        return self.fixed_s + self.link_s_per_token * tokens


def speed(
    architecture: Architecture,
    groups: Groups,
    request: EngineRequest,
    device: Device,
    efficiency: Efficiency = USUAL,
) -> Speed | None:
    """Times of one replica; ``None`` if the config does not give the shape. ``groups`` are loaded bytes.

    A token passes the pipeline stages one after the other, so only tensor parallelism divides its time.
    """
    if not architecture.is_known:
        return None
    ranks = request.tensor_parallel
    experts = architecture.experts
    shape = architecture
    share = experts.active / experts.count if experts else 0.0
    # A step reads single rows of an embedding, but all of it if it is also the head (tied).
    dense = groups.total - groups.experts - (groups.embedding if groups.head else 0.0)
    link_s, link_per_token = _links(shape, request, device)
    return Speed(
        dense_bytes=dense / ranks,
        expert_bytes=groups.experts / ranks,
        expert_share=share,
        kv_per_token=kv_bytes_per_token(shape, request) * request.pipeline_parallel,
        bytes_per_s=device.bandwidth_gb_s * 1e9 * efficiency.bandwidth,
        flops_per_token=2 * active_parameters(shape) / ranks,
        flops_per_context=4 * shape.cached_layers * shape.heads * shape.head_dim / ranks,
        flops_per_s=_peak(shape, request, device) * 1e12 * efficiency.compute,
        fixed_s=link_s + (0.0 if device.is_cpu else _layers_s(shape)),
        link_s_per_token=link_per_token,
    )


def _layers_s(shape: Architecture) -> float:
    experts = shape.experts
    with_experts = 0 if experts is None else shape.layers - experts.dense_layers
    return LAYER_S * shape.layers + EXPERT_LAYER_S * with_experts


def _peak(shape: Architecture, request: EngineRequest, device: Device) -> float:
    """TFLOP/s in the number format of the multiplication."""
    method = request.quantization or (shape.quantization.method if shape.quantization else "")
    eight_bit = "fp8" in family(method) or (method == "compressed-tensors" and _bits(shape) == 8)
    return device.fp8_tflops if eight_bit and device.fp8_tflops else device.tflops


def _bits(shape: Architecture) -> int:
    return 0 if shape.quantization is None else shape.quantization.bits


def _links(shape: Architecture, request: EngineRequest, device: Device) -> tuple[float, float]:
    """Two all-reduces per layer: seconds that do not depend on the size, and seconds per token.

    A ring moves ``2 (n - 1) / n`` of the data over each link.
    """
    ranks = request.tensor_parallel
    if ranks == 1:
        return 0.0, 0.0
    count = 2 * shape.layers
    latency = LINK_LATENCY_S[device.link_gb_s <= PCIE_GB_S]
    moved = 2 * (ranks - 1) / ranks * shape.hidden * element_bytes(shape, request)
    return count * latency, count * moved / (device.link_gb_s * 1e9)
