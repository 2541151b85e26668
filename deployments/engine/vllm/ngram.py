"""Keeps the machine code of vLLM's n-gram proposer, which vLLM compiles anew in each start.

Checked against vLLM 0.29 and numba 0.65. When they move, look at ``batch_propose_numba``, whose code vLLM may
keep by itself, and at ``numba.core.caching``: it has no public way to say what a file that cannot be used
means, or that code belongs in one folder alone.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

logger = logging.getLogger("ray.serve")


def keep_compiled() -> None:
    """From now on numba reads the code from ``NUMBA_CACHE_DIR``, or writes it there. It is compiled as before
    where that is not set, cannot be written, or holds a damaged file."""
    from numba.core import config
    from vllm.v1.spec_decode.ngram_proposer import batch_propose_numba

    if not config.CACHE_DIR:
        return
    config.CACHE_DIR = str(Path(config.CACHE_DIR) / _cpu())
    keep(batch_propose_numba)


def _cpu() -> str:
    """A name for this kind of CPU. Nodes may share the folder, and numba counts the files of all kinds in one
    index, which it does not lock."""
    from llvmlite import binding

    kind = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    return hashlib.sha256(kind.encode()).hexdigest()[:12]


def keep(dispatcher: Any) -> None:
    """The machine code of numba's ``dispatcher`` is kept in ``config.CACHE_DIR``, and in no other folder."""
    from numba.core import caching

    class Files(caching.CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = (caching.UserProvidedCacheLocator,)

    class Kept(caching.FunctionCache):  # type: ignore[misc]
        """A file that cannot be read or written costs the time of compiling, never the start."""

        _impl_class = Files

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                return super().load_overload(sig, target_context)
            except Exception as error:
                logger.warning("the n-gram proposer's machine code cannot be read: %r", error)
                return None

        def save_overload(self, sig: Any, data: Any) -> None:
            try:
                super().save_overload(sig, data)
            except Exception as error:
                logger.warning("the n-gram proposer's machine code cannot be kept: %r", error)

    try:
        dispatcher._cache = Kept(dispatcher.py_func)
    except RuntimeError as error:
        logger.info("the n-gram proposer is compiled in each start: %s", error)
