"""Raw options of engines are checked by `promptly check` and `promptly apply`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.cli.main import main
from deployments.cli.raw_options import NOT_CHECKED, raw_option_notes
from serve_app.settings import ModelSettings, parse_args

ROOT = Path(__file__).parents[3]
DRAFTS = {"method": "ngram", "num_speculative_tokens": 2, "options": {"draft_sample": "greedy"}}


def models(**engine: Any) -> tuple[ModelSettings, ...]:
    one = {"id": "m", "source": "org/m", "engine": {"accelerator": "cpu", **engine}}
    return parse_args({"models": [one]}, source="test").models


def nowhere(_: str) -> None:
    """vLLM is not installed."""


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    one = {"id": "m", "source": "org/m", "engine": {"accelerator": "cpu", "options": {"max_logprob": 3}}}
    application = {"import_path": "serve_app.app:build", "args": {"models": [one], "auth": "none"}}
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump({"applications": [application]}))
    return file


@pytest.mark.parametrize("engine", [{"options": {"max_logprobs": 3}}, {"speculation": DRAFTS}])
def test_where_vllm_is_not_installed_it_is_said_that_raw_options_are_not_checked(
    engine: dict[str, Any],
) -> None:
    assert raw_option_notes(models(**engine), nowhere) == (NOT_CHECKED,)


def test_without_raw_options_vllm_is_not_asked_for() -> None:
    def refused(name: str) -> None:
        raise AssertionError(name)

    assert raw_option_notes(models(max_num_seqs=8), refused) == ()


def test_a_raw_option_that_vllm_does_not_know_is_refused_by_the_check(wrong: Path) -> None:
    """In a process of its own: the command sets how much vLLM logs."""
    command = [sys.executable, "-m", "deployments.cli", "check", str(wrong)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    said = (
        "model 'm': engine.options.max_logprob = 3: vLLM has no such argument; did you mean 'max_logprobs'?"
    )
    assert done.stderr == f"{wrong}: {said}\n"


def test_a_start_leaves_raw_options_to_the_engines(wrong: Path) -> None:
    """Its check does not take the seconds of vLLM's import."""
    assert main(["check", "--without-vllm", str(wrong)]) == 0
