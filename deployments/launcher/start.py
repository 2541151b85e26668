"""Starts Ray, then the application, and waits until it is ready."""

from __future__ import annotations

import os
import time
from urllib.parse import urlsplit

from deployments.launcher import haproxy, plan, processes, status
from deployments.launcher.announcement import announce
from deployments.launcher.config import ServeConfig, config_to_run
from deployments.launcher.deployment_watch import DeploymentWatch
from deployments.launcher.downloads import Downloads, HubSizes, hub_cache
from deployments.launcher.engine_logs import EngineLogs
from deployments.launcher.errors import StartError
from deployments.launcher.run import Run
from deployments.launcher.terminal import say, say_step
from serve_app.errors import SettingsError

RAY_START_TIMEOUT_S = 120.0


class Start:
    """Starts the processes of a run. Subclasses that start another application override
    ``wait_until_ready``."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def start(self) -> None:
        say(f"Promptly: starting {self.run.options.config} (logs: {self.run.folder.logs})")
        processes.become_subreaper()
        config = config_to_run(self.run.config, self.run.folder)
        given_port = None if config is self.run.config else config.port
        plan.write_client_settings(self.run.ports, self.run.folder, given_port)
        try:
            plan.write_secrets(os.environ, self.run.folder, self.run.config)
        except SettingsError as error:
            raise StartError(str(error)) from error
        env = plan.ray_environment(os.environ, self.run.folder, self.run.config)
        env |= haproxy.environment(self.run.ports, self.run.folder, config)
        serve = self.prepare_serve(config, env | plan.client_settings(self.run.ports, self.run.folder))
        self.start_ray(env)
        self.run.deploys = True
        serve.go_on()
        self.wait_until_ready()
        announce(self.run)

    def start_ray(self, env: dict[str, str]) -> None:
        started = time.monotonic()
        command = plan.ray_command(self.run.ports, self.run.folder, plan.logical_cores())
        self.run.ray = processes.spawn("Ray", command, env, self.run.folder.logs / "ray.log")
        self.run.wait_for(self.run.dashboard.is_up, RAY_START_TIMEOUT_S, "Ray")
        say_step("Ray started", started)

    def prepare_serve(self, config: ServeConfig, env: dict[str, str]) -> processes.Child:
        """Start the process that deploys the application, which waits until Ray is there."""
        log = self.run.folder.logs / "serve.log"
        self.run.serve = processes.spawn("serve run", plan.serve_command(config), env, log, waits=True)
        return self.run.serve

    def wait_until_ready(self) -> None:
        watch = DeploymentWatch(self.run.dashboard)
        url = f"{self.run.config.url}/ready"

        def ready() -> bool:
            watch.look()
            if not self.run.config.tls:
                return status.answers(url)
            door = haproxy.owners_door(self.run.folder)
            return door is not None and status.answers_at(door, urlsplit(url).path)

        wanted = HubSizes(self.run.config.remote_sources, os.environ)
        downloads = Downloads(hub_cache(os.environ), wanted=wanted)
        engines = EngineLogs(self.run.folder.ray)

        def progress() -> tuple[int, int, int]:
            return watch.changes, downloads.progress(), engines.progress()

        self.run.wait_for(ready, self.run.options.timeout_s, url, progress)
        watch.look(at_once=True)
