"""What every kind of test may use."""

from __future__ import annotations

import pytest

from serve_app.model_store import ModelStore, default_cache_dir


@pytest.fixture(scope="session")
def prepared_models() -> ModelStore:
    """The folder of small models that `make setup` prepares."""
    store = ModelStore(default_cache_dir())
    for repo in ("sentence-transformers/all-MiniLM-L6-v2", "HuggingFaceTB/SmolLM2-135M-Instruct"):
        if not store.folder(repo).is_dir():
            pytest.fail(f"{store.folder(repo)} is missing: run `make setup`")
    return store
