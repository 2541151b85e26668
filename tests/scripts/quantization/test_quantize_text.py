"""Samples: from files of two kinds, or questions that the model answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from quantization.job import Job, Outcome, read_job, read_outcome, write
from quantization.schemes import QuantizeError
from quantization.text import HELD_TEXT, MOST_SAMPLES, held_text, questions, read_samples


def text_file(folder: Path, count: int) -> Path:
    path = folder / "texts.txt"
    path.write_text("\n\n".join(f"Paragraph {number}\nof two lines." for number in range(count)))
    return path


def test_questions_are_different_and_depend_on_the_seed_alone() -> None:
    asked = [item["question"] for item in questions(MOST_SAMPLES, 0).items]
    assert len(set(asked)) == MOST_SAMPLES
    assert questions(256, 1) == questions(256, 1)
    assert questions(256, 1) != questions(256, 2)


def test_empty_lines_part_the_samples_of_a_text_file(tmp_path: Path) -> None:
    samples = read_samples(text_file(tmp_path, 150), 128, 0)
    assert samples.origin == "texts.txt"
    assert len(samples.items) == 128
    assert all(item["text"].endswith("of two lines.") for item in samples.items)


def test_json_lines_hold_texts_or_chats(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "Hello"}]}
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join([json.dumps({"text": "Words.", "id": 1}), json.dumps(chat), ""] * 64))
    items = read_samples(path, 128, 0).items
    assert [sorted(item) for item in items].count(["messages"]) == 64
    assert [sorted(item) for item in items].count(["text"]) == 64


def test_too_few_samples_name_what_works(tmp_path: Path) -> None:
    with pytest.raises(QuantizeError, match=r"150 samples, and --samples is 256; use --samples 150"):
        read_samples(text_file(tmp_path, 150), 256, 0)
    with pytest.raises(QuantizeError, match=r"12 samples.*at least 128 are needed, or leave"):
        read_samples(text_file(tmp_path, 12), 256, 0)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "holds no JSON"),
        ("[]", "neither"),
        ('{"text": " "}', "neither"),
        ('{"messages": []}', "neither"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, expected: str) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text('{"text": "Words."}\n' + line)
    with pytest.raises(QuantizeError, match=rf"line 2 .*{expected}"):
        read_samples(path, 128, 0)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(QuantizeError, match=r"--calibration .*missing\.txt: No such file"):
        read_samples(tmp_path / "missing.txt", 128, 0)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(QuantizeError, match=r"--held .*binary\.txt: not UTF-8 text"):
        held_text(tmp_path / "binary.txt")


def test_a_held_text_must_be_long_enough(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("Too short.")
    with pytest.raises(QuantizeError, match="10 characters; at least 2000"):
        held_text(tmp_path / "short.txt")
    assert len(held_text(HELD_TEXT).split()) > 1000


def test_jobs_and_outcomes_cross_as_they_are(tmp_path: Path) -> None:
    job = Job("/in", "/out", "int8", ({"question": "Why?"},), "Held.", 512, 128, 0)
    write(tmp_path / "job.json", job)
    assert read_job(tmp_path / "job.json") == job
    outcome = Outcome(20.0, 20.5, 0.95, 1500, 30_000, {"torch": "2"})
    write(tmp_path / "outcome.json", outcome)
    assert read_outcome(tmp_path / "outcome.json") == outcome
