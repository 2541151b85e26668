"""vLLM's n-gram proposer, compiled by numba in a process of its own, as numba reads its folder only once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_a_folder_that_cannot_be_written_costs_the_time_only(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert propose(blocked / "folder")["drafts"] == [[7, 8]]
