"""Which device each of vLLM's workers has: a method more for them, in their own processes.

vLLM's ``worker_extension_cls`` names the class (see ``deployments.engine.vllm.arguments``). It gives each
worker its part of the offloaded KV cache by this number, modulo the number of workers (0.29:
``CPUOffloadingSpec.create_worker``).
"""

from __future__ import annotations


class DeviceNumber:
    """The base that vLLM adds to its worker's class."""

    def promptly_device_number(self) -> int:
        """The worker's device among those that its process sees: all of its node's with Ray."""
        import torch

        return int(torch.accelerator.current_device_index())
