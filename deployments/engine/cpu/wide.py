"""Products of 16-bit weights on x86 CPUs without instructions for them (AVX2 alone), in float32.

oneDNN has no such product there, and vLLM falls back to torch's, which takes the input one row at
a time: a prompt takes as long for each of its tokens as a decode step does. Here a block of the weights is
widened to float32 while it is in the CPU's cache, and multiplied with all rows at once. Figures:
docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.functional import linear

NARROW = frozenset({torch.bfloat16, torch.float16})
CAPABILITY = "AVX2"

FEW_ROWS = 5
"""Up to this number of rows torch's own product is as fast, or faster: it reads half of the bytes."""

BLOCK = 1 << 19
"""Weights widened at a time. 2 MiB as float32, which a core's own caches nearly hold: blocks of a quarter and
of four times this size were slower."""

Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


def is_needed() -> bool:
    """Whether this CPU is such a one."""
    return torch.backends.cpu.get_cpu_capability() == CAPABILITY


def widen_products(model: torch.nn.Module) -> int:
    """Let the layers of a loaded ``model`` whose 16-bit weights vLLM multiplies by torch do so in float32;
    their number. For eager models only: a compiled one would unroll the blocks.

    Checked against vLLM 0.29. When it moves, look at ``dispatch_cpu_unquantized_gemm``, which gives each
    layer its ``cpu_linear``: a function that closes over packed weights where another library multiplies.
    """
    product = wide_product()
    layers: list[Any] = list(_by_torch(model))
    for layer in layers:
        layer.cpu_linear = product
    return len(layers)


def _by_torch(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    for layer in model.modules():
        # Its own: a LoRA layer also shows that of the layer which it wraps.
        product = vars(layer).get("cpu_linear")
        if product is None or getattr(product, "__closure__", None) is not None:
            continue
        weight = layer.weight
        is_matrix = isinstance(weight, torch.Tensor) and weight.ndim == 2 and weight.numel() > 0
        if is_matrix and weight.dtype in NARROW:
            yield layer


def wide_product(few_rows: int = FEW_ROWS, block: int = BLOCK) -> Product:
    """``torch.nn.functional.linear`` for 16-bit tensors: ``(…, in)`` by ``(out, in)`` gives ``(…, out)``.
    Each sum is one of float32, rounded once. For one thread at a time: all products share one block."""
    shared = torch.empty(block, dtype=torch.float32)

    def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        nonlocal shared
        outs, ins = weight.shape
        rows = x.reshape(-1, ins)
        if rows.shape[0] <= few_rows:
            return linear(x, weight, bias)
        wide = rows.float()
        if ins > shared.numel():
            shared = torch.empty(ins, dtype=torch.float32)
        step = shared.numel() // ins
        made = torch.empty(rows.shape[0], outs, dtype=x.dtype)
        for start in range(0, outs, step):
            end = min(start + step, outs)
            part = shared[: (end - start) * ins].view(end - start, ins)
            part.copy_(weight[start:end])
            made[:, start:end] = linear(wide, part, None if bias is None else bias[start:end].float())
        return made.view(*x.shape[:-1], outs)

    return product
