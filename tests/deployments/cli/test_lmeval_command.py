"""`promptly lmeval`: two results of lm-evaluation-harness."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.main import main


def results(folder: Path, scores: Sequence[float], task: str = "arc_easy", **changed: Any) -> Path:
    """A folder as the harness writes it: one line for each document and filter."""
    samples = folder / "model"
    samples.mkdir(parents=True, exist_ok=True)
    with (samples / f"samples_{task}_2025-01-02T03-04-05.678901.jsonl").open("w") as lines:
        for number, score in enumerate(scores):
            line = {
                "doc_id": number,
                "doc_hash": f"h{number}",
                "filter": "none",
                "acc": score,
                "metrics": ["acc"],
            }
            lines.write(json.dumps({**line, **changed}) + "\n")
            lines.write(json.dumps({**line, "filter": "strict", "acc": 0.0}) + "\n")
    (samples / "results_2025-01-02T03-04-05.678901.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("count", "lost", "status"),
    [(400, 0, 0), (400, 60, 1), (40, 0, 3)],
)
def test_the_same_documents_are_compared_in_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, lost: int, status: int
) -> None:
    base = results(tmp_path / "base", [1.0] * count)
    cand = results(tmp_path / "cand", [0.0] * lost + [1.0] * (count - lost))
    assert main(["lmeval", str(base), str(cand)]) == status
    said = capsys.readouterr().out
    verdict = {0: "not worse: +0.0 points", 1: "worse: +15.0 points", 3: "undecided: +0.0 points"}[status]
    assert said.splitlines()[-1].startswith(verdict)
    assert "arc_easy" in said
    assert ("documents would decide" in said) is (status == 3)


def test_of_two_runs_of_a_task_the_newer_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = results(tmp_path / "base", [1.0] * 200)
    older = base / "model" / "samples_arc_easy_2024-12-31T00-00-00.000000.jsonl"
    older.write_text('{"doc_id": 0, "acc": 0.0}\n')
    assert main(["lmeval", str(base), str(results(tmp_path / "cand", [1.0] * 200))]) == 0
    assert "1.000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"doc_hash": "other"}, "is not the same in both"),
        ({"filter": "flexible"}, "the filter"),
        ({"acc": 2}, "acc: expected a number from 0 to 1"),
        ({"acc": None}, "no metric from 0 to 1 is known"),
        ({"doc_id": 7}, "doc_id: 7 stands twice"),
    ],
)
def test_what_cannot_be_compared_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], says: str
) -> None:
    base = results(tmp_path / "base", [1.0] * 5)
    assert main(["lmeval", str(base), str(results(tmp_path / "cand", [1.0] * 5, **changed))]) == 2
    assert says in capsys.readouterr().err


def test_other_tasks_documents_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = results(tmp_path / "base", [1.0] * 5)
    for candidate, says in (
        (results(tmp_path / "fewer", [1.0] * 4), "1 documents are in one of the two only"),
        (
            results(tmp_path / "other", [1.0] * 5, task="piqa"),
            "these tasks are in one of the two only: arc_easy, piqa",
        ),
        (tmp_path / "absent", "No such file"),
        (tmp_path / "base" / "model" / "results_2025-01-02T03-04-05.678901.json", "no samples of lm_eval"),
    ):
        assert main(["lmeval", str(base), str(candidate)]) == 2
        assert says in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["lmeval", str(base), str(tmp_path / "empty")]) == 2
    assert "--log_samples" in capsys.readouterr().err
    assert main(["lmeval", str(base), str(base), "--metric", "f1"]) == 2
    assert "f1: expected" in capsys.readouterr().err
    assert main(["lmeval", str(base), str(base), "--margin", "nan"]) == 2
