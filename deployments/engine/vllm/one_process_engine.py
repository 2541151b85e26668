"""A CPU engine of one rank in one process, as vLLM runs an engine of one GPU.

On CPUs vLLM puts the model's worker into a process beside the scheduler's, only because a worker's OpenMP
settings have to be in its environment before it starts (``vllm.platforms.cpu``). Here they are put into the
scheduler's own environment, so one process does: an import of vLLM less at each start, its memory less, and
no process that waits for the other by polling (figures: docs/benchmarks.md).

Checked against Ray 2.60 and vLLM 0.29. When either moves, look at:

- ``VLLMEngine._start_async_llm_engine``, which starts the processes from a finished ``VllmConfig``:
  ``ray.serve.llm`` asks for several processes on CPUs and takes no other word for it, but
  ``LLMServer(engine_cls=...)`` takes another engine;
- ``OMPProcessManager``, vLLM's own choice of CPUs: the environment that ``MultiprocExecutor`` gives a worker.
"""

from __future__ import annotations

from typing import Any

from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from vllm.utils.ompmultiprocessing import OMPProcessManager


class OneProcessEngine(VLLMEngine):
    """For an engine that ``runs_in_one_process``."""

    def _start_async_llm_engine(self, engine_args: Any, config: Any, placement_group: Any) -> Any:
        config.parallel_config.distributed_executor_backend = "uni"
        with OMPProcessManager(config).configure_omp_envs(rank=0, local_rank=0):
            return super()._start_async_llm_engine(engine_args, config, placement_group)
