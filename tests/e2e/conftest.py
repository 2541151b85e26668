"""A real vLLM engine behind the whole graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from support.collector import Collector, collecting
from support.server import Server, ServerSlot, experiments_in, launched

from serve_app.model_store import ModelStore


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache's folder; it outlives the servers."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def slot(prepared_models: ModelStore) -> Iterator[ServerSlot]:
    slot = ServerSlot()
    yield slot
    slot.stop()


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="session")
def served(
    slot: ServerSlot, store: Path, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Server:
    """`make serve`, as far as it starts something. Its traces go to ``collector``."""
    variables = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/v1/traces"}
    folder = tmp_path_factory.mktemp("launch")
    return slot.start(launched(folder, store, variables=variables, **experiments_in(folder)))


@pytest.fixture(scope="session")
def client(served: Server) -> openai.OpenAI:
    """The official client."""
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=120)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
