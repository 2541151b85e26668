"""One start of the application: its parts, and waiting while its processes run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from deployments.launcher import processes
from deployments.launcher.checks import read_checked_config
from deployments.launcher.config import ServeConfig
from deployments.launcher.errors import StartError, StopRequestedError
from deployments.launcher.folder import StartFolder
from deployments.launcher.options import Options
from deployments.launcher.ports import LOOPBACK, Claims, Ports, pick_ports
from deployments.launcher.processes import Child
from deployments.launcher.signals import StopSignals
from deployments.launcher.status import Dashboard

POLL_S = 0.25
POLLS_BETWEEN_REAPS = 20
"""Reaping orphans reads every process of the machine, which costs CPU time."""


@dataclass
class Run:
    """``start`` fills in the processes; ``stop`` ends them."""

    options: Options
    signals: StopSignals
    config: ServeConfig
    ports: Ports
    folder: StartFolder
    dashboard: Dashboard
    began: float
    ray: Child | None = None
    serve: Child | None = None
    deploys: bool = False
    """Whether ``serve`` has been told that Ray is there: before, Serve is not running."""
    polls: int = 0

    @classmethod
    def prepare(cls, options: Options, signals: StopSignals, claims: Claims) -> Run:
        """Raises: StartError: the settings or the port cannot be used."""
        config = read_checked_config(options)
        ports = pick_ports(claims, taken=frozenset({config.port}))
        folder = StartFolder.create()
        dashboard = Dashboard(LOOPBACK, ports.dashboard, folder.token.read_text(encoding="ascii"))
        return cls(options, signals, config, ports, folder, dashboard, began=time.monotonic())

    @property
    def children(self) -> list[Child]:
        return [child for child in (self.ray, self.serve) if child is not None]

    def until_stopped(self) -> None:
        """Wait.

        Raises:
            StopRequestedError: a signal asks to stop.
            StartError: a child has ended.
        """
        while True:
            self.pause()

    def wait_for(
        self,
        done: Callable[[], bool],
        limit_s: float,
        what: str,
        progress: Callable[[], object] = lambda: None,
    ) -> None:
        """Poll ``done``, children and signals. ``limit_s`` starts again whenever ``progress`` gives another
        value.

        Raises:
            StopRequestedError: a signal asks to stop.
            StartError: a child has ended, or ``limit_s`` is over.
        """
        reached = progress()
        deadline = time.monotonic() + limit_s
        while not done():
            self.pause()
            now_at = progress()
            if now_at != reached:
                reached, deadline = now_at, time.monotonic() + limit_s
            elif time.monotonic() > deadline:
                raise StartError(f"{what}: not there after {limit_s:.0f} s without progress")

    def pause(self) -> None:
        time.sleep(POLL_S)
        if self.signals.requested:
            raise StopRequestedError
        self.polls += 1
        if self.polls % POLLS_BETWEEN_REAPS == 0:
            processes.reap_orphans(self.children)
        self.check_children()

    def check_children(self) -> None:
        for child in self.children:
            code = child.process.poll()
            if code is not None:
                raise StartError(f"{child.name} ended by itself (exit code {code}):\n{child.log_tail()}")
