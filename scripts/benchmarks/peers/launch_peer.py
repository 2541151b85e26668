"""``promptly serve`` for an application other than Promptly, which is ready when Serve says that it runs.

    python -m benchmarks.peers.launch_peer CONFIG --no-check --ready-file PATH

The settings check of ``promptly serve`` is only for Promptly, so it is skipped.
"""

from __future__ import annotations

import sys

from deployments.launcher.deployment_watch import DeploymentWatch
from deployments.launcher.options import parse_options
from deployments.launcher.start import Start
from deployments.launcher.supervise import supervise

RUNNING = "RUNNING"


class PeerStart(Start):
    """Asks Serve for readiness, because only Promptly has ``/ready``."""

    def wait_until_ready(self) -> None:
        watch = DeploymentWatch(self.run.dashboard)

        def runs() -> bool:
            watch.look()
            return any(application.status == RUNNING for application in self.run.dashboard.applications())

        self.run.wait_for(runs, self.run.options.timeout_s, "the application")


def main() -> int:
    return supervise(parse_options(__doc__, None), PeerStart)


if __name__ == "__main__":
    sys.exit(main())
