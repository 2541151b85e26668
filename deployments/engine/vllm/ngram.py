"""Keeps the machine code of vLLM's n-gram proposer, which vLLM compiles anew in each start.

Checked against vLLM 0.29. When it moves, look at ``batch_propose_numba``: vLLM may keep its code by itself.
"""

from __future__ import annotations

import contextlib


def keep_compiled() -> None:
    """From now on numba reads the code from ``NUMBA_CACHE_DIR``, or writes it there. It is compiled as before
    where no folder can be written."""
    from vllm.v1.spec_decode.ngram_proposer import batch_propose_numba

    with contextlib.suppress(RuntimeError):
        batch_propose_numba.enable_caching()
