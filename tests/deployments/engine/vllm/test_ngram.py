"""Machine code that numba keeps from one start to the next."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba import njit
from numba.core import config

from deployments.engine.vllm.ngram import keep

ROOT = Path(__file__).parents[4]

PROPOSE = """
import json
import numpy as np
from deployments.engine.vllm.ngram import keep_compiled
from vllm.v1.spec_decode import ngram_proposer

keep_compiled()
proposer = object.__new__(ngram_proposer.NgramProposer)
proposer.min_n, proposer.max_n, proposer.k, proposer.max_model_len = 2, 3, 2, 16
proposer.valid_ngram_draft = np.zeros((1, 2), dtype=np.int32)
proposer.valid_ngram_num_drafts = np.zeros(1, dtype=np.int32)
proposer.num_tokens_threshold, proposer.num_numba_thread_available = 8192, 1
tokens = np.array([[5, 6, 7, 8, 5, 6] + [0] * 10], dtype=np.int32)
drafts = proposer.batch_propose(1, [0], np.array([6], dtype=np.int32), tokens, 2)
stats = ngram_proposer.batch_propose_numba.stats
print(json.dumps({"drafts": drafts, "read": sum(stats.cache_hits.values())}))
"""


def propose(folder: Path) -> dict[str, Any]:
    """In a process of its own, as a start is."""
    done = subprocess.run(
        [sys.executable, "-c", PROPOSE],
        env=dict(os.environ) | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_proposer_is_compiled_once_and_read_from_then_on(tmp_path: Path) -> None:
    assert propose(tmp_path) == {"drafts": [[7, 8]], "read": 0}
    assert propose(tmp_path) == {"drafts": [[7, 8]], "read": 1}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "doubling.py"
    path.write_text("def double(number):\n    return 2 * number\n")
    return path


def doubled_as_in_a_new_start(source: Path) -> Any:
    """numba's statistics, after a call."""
    spec = importlib.util.spec_from_file_location("doubling", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    double = njit(module.double)
    keep(double)
    assert double(21) == 42
    return double.stats


@pytest.mark.parametrize("cut", ["*.nbi", "*.nbc"])
def test_a_damaged_file_is_compiled_anew(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "kept"))
    assert not doubled_as_in_a_new_start(source).cache_hits
    assert doubled_as_in_a_new_start(source).cache_hits, "it is read where nothing is damaged"
    (damaged,) = (tmp_path / "kept").rglob(cut)
    damaged.write_bytes(damaged.read_bytes()[:10])
    assert not doubled_as_in_a_new_start(source).cache_hits


def test_code_that_cannot_be_written_is_used_all_the_same(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "kept"))
    folder = Path(doubled_as_in_a_new_start(source).cache_path)
    for each in folder.iterdir():
        each.unlink()
        each.mkdir()  # no file can take its place
    assert not doubled_as_in_a_new_start(source).cache_hits


def test_code_is_kept_nowhere_else(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(source / "no-folder"))
    assert doubled_as_in_a_new_start(source).cache_path is None
    assert [each.name for each in tmp_path.rglob("*.nb[ic]")] == []
