"""``scripts/launch.py`` for an application that is not Promptly: ready when Serve says that it runs.

    python -m benchmarks.peers.launch_peer CONFIG --no-check --ready-file PATH

The settings check of ``launch.py`` is Promptly's: leave it out.
"""

from __future__ import annotations

import sys

import launch

RUNNING = "RUNNING"


class PeerLaunch(launch.Launch):
    """Promptly answers on ``/ready``; no other application need have such a page."""

    def wait_until_ready(self) -> None:
        watch = launch.DeploymentWatch(self.dashboard)

        def runs() -> bool:
            watch.look()
            return any(application.status == RUNNING for application in self.dashboard.applications())

        self.wait_for(runs, self.options.timeout_s, "the application")


def main() -> int:
    options, signals = launch.parse_options(None), launch.StopSignals()
    try:
        peer = PeerLaunch(options, signals)
    except launch.StartError as error:
        print(error, file=sys.stderr)
        return 1
    return launch.supervise(peer)


if __name__ == "__main__":
    sys.exit(main())
