"""The memory of a model's weights in a vLLM worker. vLLM mixes the class ``WeightReport`` into its worker
(``worker_extension_cls``), in the worker's process.

vLLM 0.29 on a CPU packs the weight of a linear layer for oneDNN and drops the tensor
(``dispatch_cpu_unquantized_gemm``, ``CPUInt8ScaledMMLinearKernel``), so the parameters alone would miss most
of the model. The packed form has the size of the tensor. For embeddings both forms are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class WeightReport:
    """Methods for ``/collective_rpc``."""

    model_runner: Any

    def weight_report(self) -> dict[str, int]:
        """Bytes of the model's tensors, and of the packed copies beside tensors that were kept."""
        modules = list(self.model_runner.get_model().modules())
        return {"weights": held_bytes(modules), "copies": sum(map(_copied_bytes, modules))}


def held_bytes(modules: list[Any]) -> int:
    """Bytes of all tensors, each counted once even if shared, and of packed forms whose tensor is gone."""
    tensors = {tensor.data_ptr(): tensor.nbytes for tensor in _tensors(modules) if tensor.numel()}
    return int(sum(tensors.values())) + sum(map(_packed_bytes, modules))


def _tensors(modules: list[Any]) -> Iterator[Any]:
    for module in modules:
        yield from module.parameters(recurse=False)


def _packed_bytes(module: Any) -> int:
    """Bytes of the packed form of a linear layer whose tensor is gone."""
    if getattr(module, "output_size_per_partition", None) is None or not _is_packed(module):
        return 0
    values = int(module.output_size_per_partition * module.input_size_per_partition)
    is_int8 = getattr(module, "weight_scale", None) is not None
    return values if is_int8 else values * int(module.params_dtype.itemsize)


def _is_packed(module: Any) -> bool:
    weight = getattr(module, "weight", None)
    return weight is None or bool(weight.numel() == 0)


def _copied_bytes(module: Any) -> int:
    """Bytes of the packed form of a layer that also keeps its tensor: an embedding."""
    if not hasattr(module, "cpu_linear") or _is_packed(module):
        return 0
    return int(module.weight.nbytes) if "onednn" in _names(module.cpu_linear) else 0


def _names(function: Any) -> str:
    """The name of the function that vLLM's kernel calls (``torch.nn.functional.linear`` packs nothing)."""
    code = getattr(function, "__code__", None)
    return "" if code is None else " ".join(code.co_names)
