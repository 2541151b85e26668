"""Start Promptly on this machine and keep it running until Ctrl-C: the supervisor behind ``make serve``.

    python scripts/launch.py config/local.yaml [--port N] [--timeout S] [--ready-file PATH]

It starts a Ray cluster of its own (other clusters on the machine are not touched), runs the application
on it with HAProxy in front, waits until it is ready, and on the way out ends every process of this start.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from launcher import haproxy, plan, processes, status
from launcher.processes import Child

from serve_app.errors import SettingsError

CHECK_TIMEOUT_S = 60.0
RAY_START_TIMEOUT_S = 120.0
READY_TIMEOUT_S = 600.0
DRAIN_S = 10.0
POLL_S = 0.25
STATUS_EVERY_S = 1.0
LOOKS_BETWEEN_REAPS = 20
"""While it runs. To find orphans it reads every process of the machine, and an engine on CPUs wants these."""

# The way out, step by step; a step that runs over is cut short and named.
SERVE_SHUTDOWN_S = 20.0
CHILD_EXIT_S = 10.0
ORPHANS_EXIT_S = 3.0
TERM_S = 5.0
KILL_S = 5.0
PORT_FREE_S = 3.0

ONLY_US = 0o077
"""The umask of all that is started: logs, the store and models that are fetched are this user's alone."""


class StartError(RuntimeError):
    """The start failed; the message is all that the user needs to see."""


class StopRequestedError(Exception):
    """Ctrl-C, SIGTERM or SIGHUP arrived."""


class StopSignals:
    """Counts the requests to stop; the first ends the run, the second ends the patience."""

    def __init__(self) -> None:
        self.received: list[int] = []
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, self._note)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.received.append(signum)

    @property
    def requested(self) -> bool:
        return bool(self.received)

    @property
    def hurried(self) -> bool:
        return len(self.received) > 1


@dataclass(frozen=True)
class Options:
    config: Path
    port: int | None
    timeout_s: float
    drain_s: float
    ready_file: Path | None
    check: bool


def say(text: str) -> None:
    """To the terminal, which may be gone (SIGHUP): the way out must not end here."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say_step(text: str, started: float) -> None:
    say(f"  {text:<64} {time.monotonic() - started:6.1f} s")


class Launch:
    """One start of the application, from the check of its settings to its last process."""

    def __init__(self, options: Options, signals: StopSignals) -> None:
        self.options = options
        self.signals = signals
        self.config = read_checked_config(options)
        self.ports = plan.pick_ports(taken=frozenset({self.config.port}))
        self.folder = plan.StartFolder.create()
        self.dashboard = status.Dashboard(
            plan.LOOPBACK, self.ports.dashboard, self.folder.token.read_text(encoding="ascii")
        )
        self.began = time.monotonic()
        self.ray: Child | None = None
        self.serve: Child | None = None

    @property
    def children(self) -> list[Child]:
        return [child for child in (self.ray, self.serve) if child is not None]

    # Start ------------------------------------------------------------------------------------

    def start(self) -> None:
        say(f"Promptly: starting {self.options.config} (logs: {self.folder.logs})")
        processes.become_subreaper()
        plan.write_client_settings(self.ports, self.folder)
        config = plan.config_to_run(self.config, self.folder)
        try:
            plan.write_secrets(os.environ, self.folder, self.config)
        except SettingsError as error:
            raise StartError(str(error)) from error
        env = plan.ray_environment(os.environ, self.folder, self.config)
        env |= haproxy.environment(self.ports, self.folder, config)
        self.start_ray(env)
        self.deploy(config, env | plan.client_settings(self.ports, self.folder))
        self.wait_until_ready()
        self.announce()

    def start_ray(self, env: dict[str, str]) -> None:
        started = time.monotonic()
        command = plan.ray_command(self.ports, self.folder, plan.logical_cores())
        self.ray = processes.spawn("Ray", command, env, self.folder.logs / "ray.log")
        self.wait_for(self.dashboard.is_up, RAY_START_TIMEOUT_S, "Ray")
        say_step("Ray started", started)

    def deploy(self, config: plan.ServeConfig, env: dict[str, str]) -> None:
        log = self.folder.logs / "serve.log"
        self.serve = processes.spawn("serve run", plan.serve_command(config), env, log)

    def wait_until_ready(self) -> None:
        watch = DeploymentWatch(self.dashboard)
        url = f"{self.config.url}/ready"

        def ready() -> bool:
            watch.look()
            if not self.config.tls:
                return status.answers(url)
            door = haproxy.owners_door(self.folder)
            return door is not None and status.answers_at(door, urlsplit(url).path)

        self.wait_for(ready, self.options.timeout_s, url)
        watch.look(at_once=True)

    def announce(self) -> None:
        if self.options.ready_file is not None:
            write_atomically(self.options.ready_file, json.dumps(self.description(), indent=2))
        say(f"\nReady after {time.monotonic() - self.began:.1f} s: {self.config.url}")
        say(f"Dashboard: {plan.dashboard_url(self.ports)} (asks for the token in {self.folder.token})")
        say(f"Metrics for Prometheus: {plan.metrics_url(self.ports)}")
        if self.config.needs_admin_token:
            token = self.folder.admin_token
            say(f"Admin token for /admin: {token.read_text(encoding='utf-8')} (in {token})")
        say(f"For the commands `ray` and `serve`: source {self.folder.settings}")
        if self.config.needs_key:
            say("The commands below need a key of yours: KEY=pk-...")
        for explanation, command in plan.demo_commands(self.config):
            say(f"\n  # {explanation}\n  {command}")
        if self.config.needs_admin_token:
            say(f"\n  # what the engines do:\n  {plan.admin_command(self.config, self.folder)}")
        say("\nCtrl-C stops it.")

    def description(self) -> dict[str, object]:
        return {
            "url": self.config.url,
            "dashboard_url": plan.dashboard_url(self.ports),
            "ray_address": f"{plan.LOOPBACK}:{self.ports.gcs}",
            "env": plan.client_settings(self.ports, self.folder),
            "folder": str(self.folder.root),
            "admin_token_file": str(self.folder.admin_token),
            "metrics_url": plan.metrics_url(self.ports),
            "pids": {"supervisor": os.getpid()} | {child.name: child.process.pid for child in self.children},
        }

    def run_until_stopped(self) -> None:
        while True:
            for _ in range(LOOKS_BETWEEN_REAPS):
                self.pause_for_signals()
                self.check_children()
            processes.reap_orphans(self.children)

    def wait_for(self, done: Callable[[], bool], limit_s: float, what: str) -> None:
        """Poll ``done``, watching the children and the signals meanwhile."""
        deadline = time.monotonic() + limit_s
        while not done():
            self.pause()
            if time.monotonic() > deadline:
                raise StartError(f"{what}: not there after {limit_s:.0f} s")

    def pause(self) -> None:
        self.pause_for_signals()
        processes.reap_orphans(self.children)
        self.check_children()

    def pause_for_signals(self) -> None:
        time.sleep(POLL_S)
        if self.signals.requested:
            raise StopRequestedError

    def check_children(self) -> None:
        for child in self.children:
            code = child.process.poll()
            if code is not None:
                raise StartError(f"{child.name} ended by itself (exit code {code}):\n{child.log_tail()}")

    # Stop -------------------------------------------------------------------------------------

    def stop(self, failed: bool) -> None:
        began = time.monotonic()
        segments = processes.shared_memory(processes.descendants(os.getpid()))
        say("\nStopping (Ctrl-C again: at once) ...")
        if self.options.ready_file is not None:
            self.options.ready_file.unlink(missing_ok=True)
        try:
            self.finish_requests()
            self.shut_serve_down()
            self.end_child(self.serve)
            self.end_child(self.ray)
        finally:
            self.end_leftovers()
            self.release_memory(segments)
        self.check_port()
        self.clear_folder(keep=failed)
        say(f"Stopped in {time.monotonic() - began:.1f} s.")

    def finish_requests(self) -> None:
        """Serve's own shutdown ends HAProxy, and so every stream, at once: let them finish first."""
        started = time.monotonic()
        proxy = haproxy.Admin(self.folder)
        proxy.stop_accepting()
        if proxy.requests_in_flight() == 0:
            return
        if self.patiently(lambda: proxy.requests_in_flight() == 0, self.options.drain_s):
            say_step("requests in flight finished", started)
        else:
            say_step(f"cut short: requests still in flight: {proxy.requests_in_flight()}", started)

    def shut_serve_down(self) -> None:
        if self.serve is None or not self.ray_is_up() or self.signals.hurried:
            return
        started = time.monotonic()
        if self.dashboard.shut_serve_down(SERVE_SHUTDOWN_S, lambda: self.signals.hurried):
            say_step("Serve shut down", started)
        else:
            say_step("cut short: Serve had not shut down", started)

    def ray_is_up(self) -> bool:
        return self.ray is not None and self.ray.process.poll() is None

    def end_child(self, child: Child | None) -> None:
        if child is None or child.process.poll() is not None or self.signals.hurried:
            return
        started = time.monotonic()
        processes.send_signal(child.process.pid, signal.SIGTERM)
        if self.patiently(lambda: child.process.poll() is not None, CHILD_EXIT_S):
            say_step(f"{child.name} ended", started)
        else:
            say_step(f"cut short: {child.name} did not end on SIGTERM", started)

    def end_leftovers(self) -> None:
        """Workers end by themselves once Ray is gone; what does not is ended here."""
        if not self.signals.hurried:
            self.patiently(self.nothing_is_left, ORPHANS_EXIT_S)
        ended = processes.end_descendants(self.children, 0 if self.signals.hurried else TERM_S, KILL_S)
        if ended:
            say(f"  left over, ended now: {', '.join(ended)}")

    def release_memory(self, segments: set[Path]) -> None:
        released = processes.release_shared_memory(segments)
        if released:
            say(f"  left over, removed now: {', '.join(map(str, released))}")

    def nothing_is_left(self) -> bool:
        processes.reap_orphans(self.children)
        return not processes.descendants(os.getpid())

    def patiently(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Wait for ``done``, but no longer than the user does."""
        processes.wait_until(lambda: self.signals.hurried or done(), limit_s)
        return done()

    def check_port(self) -> None:
        host, port = self.config.host, self.config.port
        if not processes.wait_until(lambda: plan.port_is_free(host, port), PORT_FREE_S):
            say(f"  {port_taken(self.config)}")

    def clear_folder(self, keep: bool) -> None:
        if keep:
            # Of a failed start only the logs are of use: nothing that opens a door stays on the disk.
            for secret in (
                self.folder.secrets,
                self.folder.admin_token,
                self.folder.token,
                self.folder.settings,
            ):
                secret.unlink(missing_ok=True)
            say(f"  logs are kept in {self.folder.root}")
        else:
            shutil.rmtree(self.folder.root, ignore_errors=True)


class DeploymentWatch:
    """Says what changes in the application's deployments; raises when the application has failed."""

    def __init__(self, dashboard: status.Dashboard) -> None:
        self.dashboard = dashboard
        self.began = time.monotonic()
        self.next_look = self.began
        self.seen: dict[str, status.Deployment] = {}

    def look(self, at_once: bool = False) -> None:
        if time.monotonic() < self.next_look and not at_once:
            return
        for application in self.dashboard.applications():
            for deployment in application.deployments:
                self.note(deployment)
            if application.has_failed:
                raise StartError(application.failure())
        self.next_look = time.monotonic() + STATUS_EVERY_S

    def note(self, deployment: status.Deployment) -> None:
        before = self.seen.get(deployment.name)
        self.seen[deployment.name] = deployment
        if before is None or str(before) != str(deployment):
            say_step(str(deployment), self.began)
        if deployment.gist and (before is None or before.gist != deployment.gist):
            say(f"    {deployment.gist}")


def read_checked_config(options: Options) -> plan.ServeConfig:
    """Everything that can be refused before a process is started."""
    started = time.monotonic()
    if options.check:
        check_settings(options.config)
        say_step("settings checked", started)
    try:
        config = plan.read_config(options.config, options.port)
    except plan.ConfigError as error:
        raise StartError(str(error)) from error
    if not plan.port_is_free(config.host, config.port):
        raise StartError(f"{port_taken(config)}: end that one, or choose another with --port")
    return config


def check_settings(config: Path) -> None:
    """The application's own check; its message names file, key, value and expectation."""
    command = [sys.executable, "-m", "deployments.cli", "check", str(config)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=CHECK_TIMEOUT_S,
        start_new_session=True,  # the terminal's Ctrl-C is the supervisor's to answer
    )
    if done.returncode != 0:
        raise StartError(done.stderr.strip())


def port_taken(config: plan.ServeConfig) -> str:
    holder = processes.listener_on(config.port)
    return f"port {config.port} is taken" + (f" by {holder}" if holder else "")


def write_atomically(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def parse_options(arguments: list[str] | None) -> Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("config", type=Path, help="Serve config file")
    parser.add_argument("--port", type=int, help="HTTP port in place of the config's")
    parser.add_argument(
        "--timeout", type=float, default=READY_TIMEOUT_S, help="seconds to wait for readiness"
    )
    parser.add_argument(
        "--drain", type=float, default=DRAIN_S, help="seconds for requests in flight at the stop"
    )
    parser.add_argument("--ready-file", type=Path, help="JSON file to write when ready; removed at the stop")
    parser.add_argument("--no-check", action="store_true", help="skip Promptly's check of the settings")
    given = parser.parse_args(arguments)
    return Options(
        config=given.config,
        port=given.port,
        timeout_s=given.timeout,
        drain_s=given.drain,
        ready_file=given.ready_file,
        check=not given.no_check,
    )


def main(arguments: list[str] | None = None) -> int:
    """0 after a stop that followed readiness; 1 after a failure; 128 + signal when stopped before."""
    options = parse_options(arguments)
    os.umask(ONLY_US)
    signals = StopSignals()
    try:
        launch = Launch(options, signals)
    except StartError as error:
        print(error, file=sys.stderr)
        return 1
    return supervise(launch)


def supervise(launch: Launch) -> int:
    code = 1
    try:
        launch.start()
        code = 0
        launch.run_until_stopped()
    except StopRequestedError:
        code = code and 128 + launch.signals.received[0]
    except StartError as error:
        code = 1
        say(f"\nFailed: {error}")
    finally:
        launch.stop(failed=code == 1)
    return code


if __name__ == "__main__":
    sys.exit(main())
