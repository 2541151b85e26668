"""The script completes what the command takes: asked of a real bash."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from deployments.cli.completion import all_words, bash, fish
from deployments.cli.main import COMMANDS, main


def completed(*words: str) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(map(shlex.quote, ("promptly", *words)))
    script = f"{bash(all_words())}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _promptly\n"
    code = script + 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_subcommands() -> None:
    assert set(completed("")) == COMMANDS.keys()
    assert completed("com") == ["completion"]


def test_bash_completes_options_of_the_subcommand() -> None:
    assert completed("serve", "--po") == ["--port"]
    assert completed("doctor", "--js") == ["--json"]


def test_bash_completes_what_the_first_argument_may_be() -> None:
    assert completed("completion", "f") == ["fish"]
    assert completed("keys", "cr") == ["create"]


def test_bash_completes_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("configs")
    (folder / "mine.yaml").touch()
    assert completed("serve", f"{folder}/mi") == [f"{folder}/mine.yaml"]


def test_fish_knows_every_subcommand_and_its_options() -> None:
    script = fish(all_words())
    assert all(f"-a {name} -d " in script for name in COMMANDS)
    assert "-n '__fish_seen_subcommand_from serve' -l port" in script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr()
    assert f"Made by `promptly completion {shell}`" in shown.out
    assert shown.err == ""
