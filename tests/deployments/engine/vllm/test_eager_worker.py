"""The worker of an eager CPU engine, in a real engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.speculating import ROOT, TINY_LLAMA, environment, write_models

LAYERS = 4 * TINY_LLAMA["num_hidden_layers"] + 2
"""Of a Llama block: query, key and value in one; output; gate and up in one; down. And the head, and the
embedding, which vLLM treats alike."""


def test_it_widens_every_layer_where_the_cpu_needs_it_and_says_what_vllm_says(tmp_path: Path) -> None:
    write_models(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "support.wide_engine", str(tmp_path / "target")],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["vllm"]["layers"] == 0
    assert found["ours"]["layers"] == (LAYERS if found["is_needed"] else 0)
    assert found["ours"]["reloaded"] == found["ours"]["layers"], "a deep sleep's end loads them again"
    assert len(found["ours"]["logprobs"]) == 59
    # bfloat16 has 8 bits: sums that are rounded elsewhere differ by some hundredths after some blocks.
    assert found["ours"]["logprobs"] == pytest.approx(found["vllm"]["logprobs"], abs=0.25)
