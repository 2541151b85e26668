"""Checks whether a model can use data-parallel ranks."""

from __future__ import annotations

from collections.abc import Iterator

from serve_app.planning.architecture import Architecture
from serve_app.planning.problems import Problem
from serve_app.settings import EngineSettings


def check_data_parallel(where: str, engine: EngineSettings, target: Architecture) -> Iterator[Problem]:
    """Ranks share the experts' work; without experts each rank is a whole engine that waits for the others.
    ``where`` is the engine's path in messages."""
    ranks = engine.data_parallel_size
    if ranks > 1 and target.is_known and target.experts is None:
        yield Problem(
            f"{where}.data_parallel_size",
            ranks,
            f"{target.name} has no experts that ranks could share",
            f"use `replicas: {ranks}` instead",
        )
