"""The script completes what the command takes: asked of a real bash, zsh and fish."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from deployments.cli.completion import ZSH, all_words, bash, fish
from deployments.cli.main import COMMANDS, main

ZSH_SESSION = r"""
zmodload zsh/zpty || exit 1
zpty inner zsh -f -i
zpty -w inner 'PROMPT= ; source $1/setup.zsh; print READY'
while zpty -r inner line; do [[ $line == READY* ]] && break; done
zpty -w -n inner "$2"$'\t'$'\x18'
while zpty -r inner line; do print -r -- "$line"; [[ $line == *"<END>"* ]] && break; done
"""
"""zsh completes only in a terminal: an inner zsh has one, where a Tab follows the line and Ctrl-X ends it."""

ZSH_SETUP = r"""
autoload -U compinit && compinit -u -D
compadd() { local -a hits; builtin compadd -A hits "$@"; print -l -- "HIT:"${^hits}; builtin compadd "$@" }
say_end() { print -r -- "<END>" }
zle -N say_end; bindkey "^X" say_end; bindkey "^I" complete-word
"""
"""Every match goes through `compadd`, which says it."""

Ask = Callable[..., list[str]]
"""What a shell offers for the last of the words."""


def installed(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (Debian: apt-get install --no-install-recommends {shell})")


def shown(*command: str) -> list[str]:
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def by_bash(folder: Path) -> Ask:
    def ask(*words: str) -> list[str]:
        line = " ".join(map(shlex.quote, ("promptly", *words)))
        script = f"{bash(all_words())}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _promptly\n"
        return shown("bash", "-c", script + 'printf "%s\\n" "${COMPREPLY[@]}"')

    return ask


def by_zsh(folder: Path) -> Ask:
    (folder / "setup.zsh").write_text(ZSH_SETUP + ZSH + bash(all_words()), encoding="utf-8")
    session = ZSH_SESSION.replace("$1", str(folder))

    def ask(*words: str) -> list[str]:
        lines = shown("zsh", "-f", "-c", session, "zsh", "", " ".join(("promptly", *words)))
        return list(dict.fromkeys(hit for line in lines for hit in re.findall(r"HIT:(\S+)", line)))

    return ask


def by_fish(folder: Path) -> Ask:
    (folder / "promptly.fish").write_text(fish(all_words()), encoding="utf-8")

    def ask(*words: str) -> list[str]:
        line = shlex.quote(" ".join(("promptly", *words)))
        script = f"source {folder / 'promptly.fish'}; complete -C {line}"
        return [each.partition("\t")[0] for each in shown("fish", "--no-config", "-c", script)]

    return ask


@pytest.fixture(params=["bash", "zsh", "fish"])
def completed(request: pytest.FixtureRequest, tmp_path: Path) -> Ask:
    installed(request.param)
    return {"bash": by_bash, "zsh": by_zsh, "fish": by_fish}[request.param](tmp_path)


def test_a_shell_completes_subcommands(completed: Ask) -> None:
    assert set(completed("")) == COMMANDS.keys(), "and no files"
    assert completed("com") == ["completion"]


def test_a_shell_completes_options_of_the_subcommand(completed: Ask) -> None:
    assert completed("serve", "--po") == ["--port"]
    assert completed("doctor", "--js") == ["--json"]


def test_a_shell_completes_what_the_first_argument_may_be(completed: Ask) -> None:
    assert completed("completion", "f") == ["fish"]
    assert completed("keys", "cr") == ["create"]


def test_a_shell_completes_files(completed: Ask, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("configs")
    for name in ("mine.yaml", "other.yaml"):
        (folder / name).touch()
    offered = completed("serve", f"{folder}/mi")
    assert Path(offered[-1]).name == "mine.yaml", "zsh offers the folders before it too"
    assert not any(each.endswith("other.yaml") for each in offered)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr()
    assert f"Made by `promptly completion {shell}`" in shown.out
    assert shown.err == ""
