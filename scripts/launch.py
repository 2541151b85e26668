"""Start Promptly on this machine and keep it running until Ctrl-C: the supervisor behind ``make serve``.

    python scripts/launch.py config/local.yaml [--port N] [--timeout S] [--ready-file PATH]

It starts its own Ray cluster (other clusters on the machine are not touched), runs the application on it with
HAProxy in front, and waits until it is ready. At the stop it ends every process of this start.
"""

from __future__ import annotations

import os
import sys

from launcher.errors import StartError
from launcher.options import parse_options
from launcher.run import Run
from launcher.signals import StopSignals
from launcher.start import Start
from launcher.supervise import supervise

ONLY_US = 0o077
"""The umask of all processes: only this user can read logs, the store and downloaded models."""


def main(arguments: list[str] | None = None) -> int:
    """The exit status, as ``supervise`` gives it; 1 as well for wrong settings."""
    options = parse_options(__doc__, arguments)
    os.umask(ONLY_US)
    signals = StopSignals()
    try:
        run = Run.prepare(options, signals)
    except StartError as error:
        print(error, file=sys.stderr)
        return 1
    return supervise(Start(run))


if __name__ == "__main__":
    sys.exit(main())
