"""The command ``promptly``: the list of its subcommands, and how one is found and run."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TextIO

from serve_app.version import VERSION

COMMANDS: Mapping[str, str] = {
    "serve": "start the application on this machine and keep it running until Ctrl-C",
    "init": "write a commented config file for this machine",
    "doctor": "say what this machine lacks for a start, each with the command that mends it",
    "plan": "check a config file and size its engines, without loading anything",
    "check": "check a config file and what it names on this machine, without starting anything",
    "connect": "point a client (claude, codex, langchain …) at a running endpoint",
    "manifest": "print what Kubernetes needs to run a config file",
    "apply": "change a running application to another config file, or back",
    "keys": "make, list, show, change, rotate and revoke keys of a running endpoint",
    "usage": "what keys, users, tenants and models used",
    "audit": "check the chain of the audit log, and show its lines",
    "capture": "captured requests: list them, export them to a file or by OTLP, erase them",
    "feedback": "what people said of answers, corrections as golden cases",
    "prompts": "prompts that are files: list, compare, promote, roll back",
    "limits": "set, list and remove limits and budgets of a running endpoint",
    "backup": "put keys, usage, stored responses, feedback and the cache's entries into one archive",
    "restore": "put what an archive of `promptly backup` holds back, here or elsewhere",
    "eval": "evaluate a model on a suite of cases, alone or against another one",
    "lmeval": "compare two results of lm-evaluation-harness",
    "completion": "print a script by which bash, zsh or fish completes this command",
}
"""Each subcommand is the module of its name in this folder; its docstring is the long description."""


NO_READER = 128 + signal.SIGPIPE
"""The exit status where nobody reads what is printed any more: as the shell has it of a program that the
signal ends."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return run(given)
    except BrokenPipeError:
        unread = [each for each in (sys.stdout, sys.stderr) if is_unread(each)]
        if not unread:
            raise  # another pipe, or a connection
        for each in unread:  # or Python would write there once more as it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), each.fileno())
        return NO_READER


def run(given: Sequence[str]) -> int:
    """Raises: BrokenPipeError: who read what is printed has gone (``promptly … | head -1``)."""
    try:
        options = build_parser(given[:1]).parse_args(given)
        status: int = options.run(options)
        return status
    finally:
        if sys.stdout is not None:  # it is where the shell has closed it (``>&-``)
            sys.stdout.flush()  # here, not at the end of Python, which would only complain


def is_unread(stream: TextIO | None) -> bool:
    """Whether it is a pipe that nobody reads."""
    if stream is None:
        return False
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def build_parser(chosen: Sequence[str]) -> argparse.ArgumentParser:
    """The parser with the arguments of the subcommands ``chosen``; of the others it has names and help.

    A subcommand's module is imported only when it is chosen: a start's supervisor lives as long as the
    application, and must not hold what other subcommands import.
    """
    parser = argparse.ArgumentParser(prog="promptly", description="Tools around a Promptly application.")
    parser.add_argument("--version", action="version", version=f"promptly {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="SUBCOMMAND")
    for name, about in COMMANDS.items():
        if name not in chosen:
            commands.add_parser(name, help=about)
            continue
        module = import_module(f"deployments.cli.{name}")
        command = commands.add_parser(
            name,
            help=about,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
    return parser
