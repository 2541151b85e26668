"""Runs a CPU engine of one rank in one process, as vLLM does for one GPU.

On CPUs vLLM runs the model's worker in a separate process, only because a worker's OpenMP settings must be in
its environment before it starts (``vllm.platforms.cpu``). Here they are set in the scheduler's own
environment, so one process is enough. That saves one import of vLLM at each start and its memory, and no
process waits for another by polling (figures: docs/benchmarks.md).

Checked against Ray 2.60 and vLLM 0.29. When either moves, look at:

- ``VLLMEngine._start_async_llm_engine``, which starts the processes from a finished ``VllmConfig``:
  ``ray.serve.llm`` always asks for several processes on CPUs, but ``LLMServer(engine_cls=...)`` accepts
  another engine class;
- ``OMPProcessManager``, vLLM's own choice of CPUs: the environment that ``MultiprocExecutor`` gives a worker.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from vllm.utils.ompmultiprocessing import OMPProcessManager

if TYPE_CHECKING:
    from deployments.engine.vllm.fork_server import ForkServer


class OneProcessEngine(VLLMEngine):
    """An engine that ``runs_in_one_process``: one of the ``fork_server``, if it is given."""

    def __init__(self, llm_config: Any, fork_server: ForkServer | None = None) -> None:
        super().__init__(llm_config)
        self._fork_server = fork_server

    def _start_async_llm_engine(self, engine_args: Any, config: Any, placement_group: Any) -> Any:
        config.parallel_config.distributed_executor_backend = "uni"
        fork_server = self._fork_server
        if fork_server is not None and config.parallel_config.numa_bind:
            fork_server.give_up("a NUMA binding exchanges the program that is spawned")
        forking = nullcontext() if fork_server is None else fork_server.forking_cores()
        with OMPProcessManager(config).configure_omp_envs(rank=0, local_rank=0), forking:
            return super()._start_async_llm_engine(engine_args, config, placement_group)
