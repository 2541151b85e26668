"""llm-compressor itself on a tiny model, where its environment has been made. PROMPTLY_TEST_LONG makes it, as
the documents say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quantization.environment import interpreter
from quantization.schemes import QuantizeError
from quantize import main
from safetensors import safe_open
from support.tiny_llama import write_tiny_llama

from serve_app.model_store import ModelStore

ROOT = Path(__file__).parents[3]
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture
def _llm_compressor() -> None:
    if "PROMPTLY_TEST_LONG" in os.environ:
        subprocess.run([sys.executable, "scripts/quantize.py", "--install"], cwd=ROOT, check=True)
    try:
        interpreter()
    except QuantizeError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("_llm_compressor")
def test_a_tiny_model_becomes_int8_with_a_card_beside_it(
    tmp_path: Path, prepared_models: ModelStore, capfd: pytest.CaptureFixture[str]
) -> None:
    model = write_tiny_llama(tmp_path / "tiny", prepared_models.folder(SMOLLM2))
    samples = tmp_path / "samples.txt"
    samples.write_text(
        "\n\n".join(f"Sentence {number} is about the number {number}." for number in range(128))
    )
    words = [str(model), "--scheme", "int8", "--rounds", "0"]

    assert main([*words, "--samples", "128", "--calibration", str(samples)]) == 0
    out = tmp_path / "tiny-int8"
    card = json.loads((out / "quantization.json").read_text())
    config = json.loads((out / "config.json").read_text())
    with safe_open(out / "model.safetensors", framework="numpy") as weights:
        kinds = {name: weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    assert kinds["model.layers.0.mlp.up_proj.weight"] == "I8"
    assert kinds["model.embed_tokens.weight"] == "F32"
    assert card["samples"] == 128
    assert card["size_bytes"]["ratio"] < 1
    assert card["perplexity"]["ratio"] == pytest.approx(1, abs=0.1)
    assert card["same_next_token"] > 0.5
    assert (out / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()
    assert "| weights, MiB |" in capfd.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["samples.txt", "tiny", "tiny-int8"]
