"""The evaluation as a command, on the project's own pairs and the real embedder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cache_lab.cosines import EMBEDDER
from cache_lab.pairs import WRITTEN_PAIRS, read_pairs
from eval_cache import configured, configured_first, seen_by_training

from serve_app.model_store import ModelStore, default_cache_dir

SCRIPT = Path(__file__).parents[3] / "scripts" / "eval_cache.py"


def evaluate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
    )


@pytest.mark.skipif(
    not ModelStore(default_cache_dir()).folder(EMBEDDER).is_dir(), reason=f"{EMBEDDER} is not prepared"
)
def test_it_runs_for_anyone(tmp_path: Path) -> None:
    done = evaluate("--out", str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "| strict setting |" in done.stdout
    assert {path.suffix for path in tmp_path.iterdir()} == {".md", ".json", ".png"}


@pytest.mark.skipif(
    not ModelStore(default_cache_dir()).folder(EMBEDDER).is_dir(), reason=f"{EMBEDDER} is not prepared"
)
def test_the_same_pairs_have_the_same_figures_whatever_their_company(tmp_path: Path) -> None:
    lines = (WRITTEN_PAIRS / "e5.tsv").read_text(encoding="utf-8").split("\n")[:16]
    found = []
    for name, chosen in (("once", lines), ("again", lines[::-1])):
        pairs = tmp_path / f"{name}.tsv"
        pairs.write_text("\n".join(chosen), encoding="utf-8")
        done = evaluate("--pairs", str(pairs), "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stderr[-2000:]
        found.append(json.loads((tmp_path / name / "eval_cache.json").read_text(encoding="utf-8")))
    once, again = found
    assert once["parts"] == again["parts"]
    assert once["score_curve"] == again["score_curve"]
    assert once["training"].startswith("16 of 16 pairs share a text")


def test_it_names_the_written_files_that_pairs_share_texts_with() -> None:
    pairs = read_pairs(WRITTEN_PAIRS / "e5.tsv")[:4] + read_pairs(WRITTEN_PAIRS / "e1.tsv")[:3]
    seen = seen_by_training(pairs, "an embedder without a verifier")
    assert seen.startswith("7 of 7 pairs share a text with the written ones (e1 3, e5 4, m1 1); ")


def test_without_settings_the_shipped_configuration_is_evaluated() -> None:
    embedder, cache = configured(None)
    assert (embedder.source, embedder.dtype) == (EMBEDDER, "int8")
    assert (cache.decision, cache.threshold, cache.languages) == ("strict", None, ("en",))


def test_the_configured_decision_comes_first() -> None:
    assert configured_first("balanced") == ("balanced", "strict")
    assert configured_first("strict") == ("strict", "balanced")
    assert configured_first("similarity") == ("similarity", "strict", "balanced")


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    done = evaluate("--pairs", str(bad))
    assert done.returncode == 1
    assert f"{bad}:1: an object with query, candidate, same and stratum is wanted" in done.stderr
