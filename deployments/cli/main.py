"""``promptly SUBCOMMAND``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from deployments.cli import audit, check, connect, keys, limits, plan, usage


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status."""
    parser = argparse.ArgumentParser(prog="promptly", description="Tools around a Promptly application.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="SUBCOMMAND")
    plan.add_arguments(
        commands.add_parser(
            "plan",
            help="check a config file and size its engines, without loading anything",
            description=plan.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    check.add_arguments(
        commands.add_parser(
            "check",
            help="check a config file and what it names on this machine, without starting anything",
            description=check.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    connect.add_arguments(
        commands.add_parser(
            "connect",
            help="point a client (claude, codex, langchain …) at a running endpoint",
            description=connect.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    keys.add_arguments(
        commands.add_parser(
            "keys",
            help="make, list, show, change, rotate and revoke keys of a running endpoint",
            description=keys.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    usage.add_arguments(
        commands.add_parser(
            "usage",
            help="what keys, users, tenants and models used",
            description=usage.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    audit.add_arguments(
        commands.add_parser(
            "audit",
            help="check the chain of the audit log, and show its lines",
            description=audit.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    limits.add_arguments(
        commands.add_parser(
            "limits",
            help="set, list and remove limits and budgets of a running endpoint",
            description=limits.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    options = parser.parse_args(arguments)
    status: int = options.run(options)
    return status
