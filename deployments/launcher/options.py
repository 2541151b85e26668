"""The command line of the supervisor."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deployments.launcher.ports import port_number

READY_TIMEOUT_S = 600.0
DRAIN_S = 10.0


@dataclass(frozen=True)
class Options:
    config: Path
    port: int | None
    timeout_s: float
    drain_s: float
    ready_file: Path | None
    check: bool
    keep_logs: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="Serve config file")
    parser.add_argument("--port", type=port_number, help="HTTP port; overrides the config's")
    parser.add_argument(
        "--timeout", type=float, default=READY_TIMEOUT_S, help="seconds without progress, then give up"
    )
    parser.add_argument(
        "--drain", type=float, default=DRAIN_S, help="seconds that requests in flight get at the stop"
    )
    parser.add_argument(
        "--ready-file", type=Path, help="JSON file that is written when ready and removed at the stop"
    )
    parser.add_argument(
        "--keep-logs", action="store_true", help="leave the logs of all processes at the stop"
    )
    parser.add_argument("--no-check", action="store_true", help="skip Promptly's check of the settings")


def options_of(given: argparse.Namespace) -> Options:
    return Options(
        config=given.config,
        port=given.port,
        timeout_s=given.timeout,
        drain_s=given.drain,
        ready_file=given.ready_file,
        check=not given.no_check,
        keep_logs=given.keep_logs,
    )


def parse_options(description: str | None, arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    add_arguments(parser)
    return options_of(parser.parse_args(arguments))
