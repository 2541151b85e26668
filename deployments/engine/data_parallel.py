"""An engine of several data-parallel ranks, each a separate replica.

``ray.serve.llm``'s ``DPServer`` places the ranks of an engine together (a *gang* of Serve replicas), gives
each its number and the address of rank 0, and restarts all of them when one fails. To a gateway every rank is
an ordinary member with a listener, a load and a capacity; the ranks synchronise their steps among themselves.
"""

from __future__ import annotations

from ray.serve.llm.deployment import DPServer

from deployments.engine.deployment import Engine


class DataParallelEngine(Engine, DPServer):
    """One rank. By the order of the base classes, ``Engine``'s constructor calls ``DPServer``'s instead of
    ``LLMServer``'s."""
