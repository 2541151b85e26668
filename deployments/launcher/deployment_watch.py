"""Reports how the application's deployments start."""

from __future__ import annotations

import time

from deployments.launcher.errors import StartError
from deployments.launcher.status import Dashboard, Deployment
from deployments.launcher.terminal import say, say_step

STATUS_EVERY_S = 1.0


class DeploymentWatch:
    """Prints changes of the application's deployments; raises ``StartError`` when the application fails,
    or cannot start with these settings."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self.began = time.monotonic()
        self.next_look = self.began
        self.seen: dict[str, Deployment] = {}
        self.changes = 0

    def look(self, at_once: bool = False) -> None:
        if time.monotonic() < self.next_look and not at_once:
            return
        for application in self.dashboard.applications():
            for deployment in application.deployments:
                self.note(deployment)
            if application.has_failed or any(each.is_refused for each in application.deployments):
                raise StartError(application.failure())
        self.next_look = time.monotonic() + STATUS_EVERY_S

    def note(self, deployment: Deployment) -> None:
        before = self.seen.get(deployment.name)
        self.seen[deployment.name] = deployment
        if before is None or str(before) != str(deployment):
            self.changes += 1
            say_step(str(deployment), self.began)
        if deployment.gist and (before is None or before.gist != deployment.gist):
            say(f"    {deployment.gist}")
