"""A run from its start to its last process."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable

from deployments.launcher.errors import StartError, StopRequestedError
from deployments.launcher.options import Options
from deployments.launcher.ports import Claims
from deployments.launcher.run import Run
from deployments.launcher.signals import StopSignals
from deployments.launcher.start import Start
from deployments.launcher.stop import Stop
from deployments.launcher.terminal import say


def supervise(options: Options, start_of: Callable[[Run], Start]) -> int:
    """The exit status: 0 after a stop that followed readiness, 1 after a failure or for wrong settings,
    128 + signal when stopped before."""
    with Claims() as claims:
        return _supervise(options, start_of, claims)


def _supervise(options: Options, start_of: Callable[[Run], Start], claims: Claims) -> int:
    try:
        run = Run.prepare(options, StopSignals(), claims)
    except StartError as error:
        print(error, file=sys.stderr)
        return 1
    code = 1
    try:
        start_of(run).start()
        code = 0
        run.until_stopped()
    except StopRequestedError:
        code = code and 128 + run.signals.received[0]
    except StartError as error:
        say(f"\nFailed: {error}")
        if code == 1:  # it was never ready
            doctor = shlex.join(("promptly", "doctor", str(options.config)))
            say(f"`{doctor}` looks for what this machine lacks.")
        code = 1
    finally:
        Stop(run).stop(failed=code == 1)
    return code
