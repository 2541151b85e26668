"""Print a script by which a shell completes `promptly`'s subcommands and options.

    bash: promptly completion bash > ~/.local/share/bash-completion/completions/promptly
    zsh:  promptly completion zsh >> ~/.zshrc
    fish: promptly completion fish > ~/.config/fish/completions/promptly.fish

The script is of this version: make it again after an upgrade. It starts nothing when it completes.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from deployments.cli.main import COMMANDS, build_parser

BASH = """\
# Completes `promptly` in bash. Made by `promptly completion bash`.
_promptly() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} options= words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {commands} -- "$current"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  elif [ "$COMP_CWORD" -eq 2 ] && [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _promptly promptly
"""

ZSH = """\
# Completes `promptly` in zsh, by bash's rules. Made by `promptly completion zsh`.
autoload -U +X compinit && compinit
autoload -U +X bashcompinit && bashcompinit
"""


@dataclass(frozen=True)
class Words:
    """What may follow a subcommand: options, and the words that its first argument may be."""

    options: tuple[str, ...]
    words: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly completion``."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    words = all_words()
    scripts = {"bash": bash(words), "zsh": ZSH + bash(words), "fish": fish(words)}
    print(scripts[options.shell], end="")
    return 0


def all_words() -> dict[str, Words]:
    """The words of each subcommand, read from its parser."""
    parser = build_parser(tuple(COMMANDS))
    return {name: words_of(command) for name, command in subparsers(parser).items()}


def subparsers(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def words_of(parser: argparse.ArgumentParser) -> Words:
    """Options of nested subcommands too: which of them was chosen is not looked at."""
    nested = subparsers(parser)
    options = dict.fromkeys(options_of(parser))
    for inner in nested.values():
        options |= dict.fromkeys(options_of(inner))
    choices = (action.choices for action in parser._actions if not action.option_strings and action.choices)
    return Words(tuple(options), tuple(nested) or tuple(str(each) for each in next(choices, ())))


def options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    return (text for action in parser._actions for text in action.option_strings if text.startswith("--"))


def bash(words: Mapping[str, Words]) -> str:
    cases = "\n".join(
        f"    {name}) options={quoted(each.options)} words={quoted(each.words)} ;;"
        for name, each in words.items()
    )
    return BASH.format(commands=quoted(words), cases=cases)


def quoted(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


def fish(words: Mapping[str, Words]) -> str:
    """Files are offered where an argument may be one: not for the subcommand, nor for a word of a list."""
    lines = [
        "# Completes `promptly` in fish. Made by `promptly completion fish`.",
        "complete -c promptly -n __fish_use_subcommand -f",
    ]
    for name, each in words.items():
        about = shlex.quote(COMMANDS[name])
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        first = f"-n '__fish_seen_subcommand_from {name}; and test (count (commandline -opc)) -eq 2'"
        lines.append(f"complete -c promptly -n __fish_use_subcommand -a {name} -d {about}")
        lines += [f"complete -c promptly {seen} -l {option.removeprefix('--')}" for option in each.options]
        lines += [f"complete -c promptly {first} -f -a {word}" for word in each.words]
    return "\n".join(lines) + "\n"
