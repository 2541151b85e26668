"""An engine of several data-parallel ranks, each a replica of its own.

``ray.serve.llm``'s ``DPServer`` places the ranks of an engine together (a *gang* of Serve replicas), tells
each its number and where rank 0 is, and restarts all of them when one fails. To a gateway every rank is a
member like any other: it has a listener, a load and a capacity; the ranks themselves see to it that they step
together.
"""

from __future__ import annotations

from ray.serve.llm.deployment import DPServer

from deployments.engine.deployment import Engine
from serve_app.settings import EngineSettings


class DataParallelEngine(Engine, DPServer):
    """One rank. ``Engine``'s constructor calls ``DPServer``'s in ``LLMServer``'s place."""


def engine_class(engine: EngineSettings) -> type[Engine]:
    """The deployment class of an engine's replicas."""
    return DataParallelEngine if engine.data_parallel_size > 1 else Engine
