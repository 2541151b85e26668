"""A command whose output is not read any more ends without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from deployments.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
BROKEN_PIPE = 128 + 13
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
OTHER_PIPE = """
import os, sys
from types import SimpleNamespace
from deployments.cli import main

def to_nobody(_):
    end, pipe = os.pipe()
    os.close(end)
    os.write(pipe, b"lost")

main.build_parser = lambda _: SimpleNamespace(parse_args=lambda _: SimpleNamespace(run=to_nobody))
main.main(["plan"])
"""


def unread(command: Sequence[str], *, errors: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """The command, with a standard output that nobody reads."""
    end, output = os.pipe()
    os.close(end)
    try:
        return subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=BUFFERED,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(output)


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "config/upstreams.yaml"],
        ["completion", "bash"],
        ["--help"],
        ["--version"],
        *([name, "--help"] for name in ("keys", "eval")),
    ],
    ids=" ".join,
)
def test_a_command_whose_reader_has_gone_ends_quietly(words: list[str]) -> None:
    assert words[0] in COMMANDS or words[0].startswith("--")
    done = unread(["-m", "deployments.cli", *words])
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "")


def test_so_does_one_whose_errors_are_not_read() -> None:
    assert unread(["-m", "deployments.cli", "plan", "absent.yaml"], errors=subprocess.STDOUT).returncode == (
        BROKEN_PIPE
    )


def test_a_pipe_that_is_not_the_output_is_an_error_as_before() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PIPE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "BrokenPipeError" in done.stderr
