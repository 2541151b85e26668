"""The encoders on the small model that `make setup` prepares."""

from __future__ import annotations

from typing import Any

import pytest
from embedding_samples import require_onnx

from deployments.embedder import EncoderSpec, TextEncoder, open_encoder
from deployments.embedder.torch_encoder import load_library_model
from serve_app.model_store import ModelStore, default_cache_dir

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture(scope="session")
def spec() -> EncoderSpec:
    folder = ModelStore(default_cache_dir()).folder(MODEL)
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing: run `make setup`")
    return EncoderSpec(MODEL)


@pytest.fixture(scope="session")
def library(spec: EncoderSpec) -> Any:
    """The model in sentence-transformers' own hands."""
    return load_library_model(spec)


@pytest.fixture(scope="session", params=["torch", "onnx"])
def encoder(request: pytest.FixtureRequest, spec: EncoderSpec) -> TextEncoder:
    if request.param == "onnx":
        require_onnx()
    return open_encoder(request.param, spec)
