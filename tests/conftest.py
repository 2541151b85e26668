"""What every kind of test may use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support.graph import ADMIN_TOKEN

from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.request.admin_token import TOKEN_VARIABLE


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
