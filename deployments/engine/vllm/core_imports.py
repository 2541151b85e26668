"""What the fork server imports: the modules of vLLM's core on CPUs that do not depend on the model."""

import gc

# What is imported lives as long as the processes that share it: to collect would copy its memory.
gc.disable()

import vllm.v1.engine.core  # noqa: E402
import vllm.v1.executor.uniproc_executor  # noqa: E402
import vllm.v1.worker.cpu_worker  # noqa: E402, F401

gc.freeze()
gc.enable()
