"""vLLM's worker for an eager CPU engine, with products that suit the CPU.

vLLM's ``worker_cls`` names it (see ``deployments.engine.vllm.arguments``). Checked against vLLM 0.29. When it
moves, look at ``CPUWorker.load_model``, ``reload_weights`` and ``drafter`` of its model runner.
"""

from __future__ import annotations

import logging
from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker

from deployments.engine.cpu.wide import is_needed, widen_products

logger = logging.getLogger("vllm.promptly")  # vLLM's processes show its own loggers alone


class EagerWorker(CPUWorker):
    def load_model(self, **how: Any) -> None:
        super().load_model(**how)
        self._widen()

    def reload_weights(self, *args: Any, **how: Any) -> None:
        """A deep sleep's end: vLLM gives each layer its product anew."""
        super().reload_weights(*args, **how)
        self._widen()

    def _widen(self) -> None:
        if not is_needed():
            return
        runner = self.model_runner
        models = [runner.model, getattr(getattr(runner, "drafter", None), "model", None)]
        layers = sum(widen_products(model) for model in models if model is not None)
        if layers:
            logger.info("%d layers multiply in float32: this CPU has no 16-bit products", layers)
