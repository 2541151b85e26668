"""What every kind of test may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.graph import ADMIN_TOKEN

from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.request.admin_token import TOKEN_VARIABLE

TESTS = Path(__file__).parent
APPLICATIONS = ("e2e", "clients", "graph")
"""Folders whose tests start whole applications, one after another: two at once are too much for two cores."""


@pytest.fixture(scope="session")
def prepared_models() -> ModelStore:
    """The folder of small models that `make setup` prepares."""
    store = ModelStore(default_cache_dir())
    for repo in ("sentence-transformers/all-MiniLM-L6-v2", "HuggingFaceTB/SmolLM2-135M-Instruct"):
        if not store.folder(repo).is_dir():
            pytest.fail(f"{store.folder(repo)} is missing: run `make setup`")
    return store


@pytest.fixture(scope="session", autouse=True)
def admin_token() -> Iterator[None]:
    """Every endpoint that a test starts, and every script that asks one, knows this token."""
    before = os.environ.get(TOKEN_VARIABLE)
    os.environ[TOKEN_VARIABLE] = ADMIN_TOKEN
    yield
    os.environ.pop(TOKEN_VARIABLE)
    if before is not None:
        os.environ[TOKEN_VARIABLE] = before


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes run the tests, one of them runs all that start applications, and begins with
    them, for they take longest. The tests of any other file stay together, too: they share fixtures."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        path = item.path.relative_to(TESTS)
        group = "applications" if path.parts[0] in APPLICATIONS else str(path)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    folder = item.path.relative_to(TESTS).parts[0]
    return APPLICATIONS.index(folder) if folder in APPLICATIONS else len(APPLICATIONS)
