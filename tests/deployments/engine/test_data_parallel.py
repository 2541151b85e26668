"""Engines of several data-parallel ranks, as Serve is asked for them."""

from __future__ import annotations

import pytest

from deployments.graph import engine_options
from serve_app.settings import EngineSettings, ModelSettings


@pytest.mark.parametrize(("ranks", "engines", "replicas"), [(1, 3, 3), (4, 1, 4), (4, 2, 8)])
def test_each_rank_is_a_replica_to_serve(ranks: int, engines: int, replicas: int) -> None:
    engine = EngineSettings(data_parallel_size=ranks)
    model = ModelSettings(id="m", source="owner/moe", engine=engine, replicas=engines)
    assert engine_options(model)["num_replicas"] == replicas
