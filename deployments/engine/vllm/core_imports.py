"""What the fork server imports: the modules of vLLM's core on CPUs that do not depend on the model."""

import gc

from deployments.engine.vllm.ngram import keep_compiled

# What is imported lives as long as the processes that share it: to collect would copy its memory.
gc.disable()
try:
    import vllm.v1.engine.core
    import vllm.v1.executor.uniproc_executor  # noqa: F401

    import deployments.engine.vllm.eager_worker
    import deployments.engine.vllm.guarded_scheduler  # noqa: F401

    keep_compiled()
finally:
    gc.freeze()
    gc.enable()
