"""Start Promptly on this machine and keep it running until Ctrl-C: the supervisor behind ``make serve``.

    python scripts/launch.py config/local.yaml [--port N] [--timeout S] [--ready-file PATH]

It starts its own Ray cluster (other clusters on the machine are not touched), runs the application on it with
HAProxy in front, and waits until it is ready. At the stop it ends every process of this start.
"""

from __future__ import annotations

import os
import sys

from launcher.options import parse_options
from launcher.start import Start
from launcher.supervise import supervise

ONLY_US = 0o077
"""The umask of all processes: only this user can read logs, the store and downloaded models."""


def main(arguments: list[str] | None = None) -> int:
    """The exit status, as ``supervise`` gives it."""
    options = parse_options(__doc__, arguments)
    os.umask(ONLY_US)
    return supervise(options, Start)


if __name__ == "__main__":
    sys.exit(main())
