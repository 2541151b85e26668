"""Start the application on this machine and keep it running until Ctrl-C.

    promptly serve config.yaml
    promptly serve config.yaml --port 9000

It starts its own Ray cluster (other clusters on the machine are not touched), runs the application on it with
HAProxy in front, and waits until it is ready. At the stop it ends every process of this start.

Exit status: 0 after a stop that followed readiness, 1 after a failure or for wrong settings, 128 + signal
when stopped before.
"""

from __future__ import annotations

import argparse
import os

from deployments.launcher import options as launcher_options
from deployments.launcher.start import Start
from deployments.launcher.supervise import supervise

ONLY_US = 0o077
"""The umask of all processes: only this user can read logs, the store and downloaded models."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly serve``."""
    launcher_options.add_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    os.umask(ONLY_US)
    return supervise(launcher_options.options_of(options), Start)
