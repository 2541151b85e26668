"""A run from its start to its last process."""

from __future__ import annotations

from launcher.errors import StartError, StopRequestedError
from launcher.start import Start
from launcher.stop import Stop
from launcher.terminal import say


def supervise(start: Start) -> int:
    """The exit status: 0 after a stop that followed readiness, 1 after a failure, 128 + signal when stopped
    before."""
    run, code = start.run, 1
    try:
        start.start()
        code = 0
        run.until_stopped()
    except StopRequestedError:
        code = code and 128 + run.signals.received[0]
    except StartError as error:
        code = 1
        say(f"\nFailed: {error}")
    finally:
        Stop(run).stop(failed=code == 1)
    return code
