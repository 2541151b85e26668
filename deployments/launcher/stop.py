"""Ends every process of a start and removes its files."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from deployments.launcher import haproxy, processes
from deployments.launcher.checks import port_taken
from deployments.launcher.ports import port_is_free
from deployments.launcher.processes import Child
from deployments.launcher.run import Run
from deployments.launcher.terminal import say, say_step

# Limits of the steps; a step that takes longer is cut short, and a line says so.
SERVE_SHUTDOWN_S = 20.0
CHILD_EXIT_S = 10.0
ORPHANS_EXIT_S = 3.0
TERM_S = 5.0
KILL_S = 5.0
PORT_FREE_S = 3.0


class Stop:
    """Ends a run. A second signal (``hurried``) skips all waiting."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def stop(self, failed: bool) -> None:
        began = time.monotonic()
        segments = processes.shared_memory(processes.descendants(os.getpid()))
        say("\nStopping (Ctrl-C again: at once) ...")
        if self.run.options.ready_file is not None:
            self.run.options.ready_file.unlink(missing_ok=True)
        try:
            self.finish_requests()
            self.shut_serve_down()
            self.end_child(self.run.serve)
            self.end_child(self.run.ray)
        finally:
            self.end_leftovers()
            self.release_memory(segments)
        self.check_port()
        self.clear_folder(keep=failed or self.run.options.keep_logs)
        say(f"Stopped in {time.monotonic() - began:.1f} s.")

    def finish_requests(self) -> None:
        """Let streams finish first, because Serve's shutdown ends HAProxy and with it every stream."""
        started = time.monotonic()
        proxy = haproxy.Admin(self.run.folder)
        proxy.stop_accepting()
        if proxy.requests_in_flight() == 0:
            return
        if self.patiently(lambda: proxy.requests_in_flight() == 0, self.run.options.drain_s):
            say_step("requests in flight finished", started)
        else:
            say_step(f"cut short: requests still in flight: {proxy.requests_in_flight()}", started)

    def shut_serve_down(self) -> None:
        if not self.run.deploys or not self.ray_is_up() or self.run.signals.hurried:
            return
        started = time.monotonic()
        if self.run.dashboard.shut_serve_down(SERVE_SHUTDOWN_S, lambda: self.run.signals.hurried):
            say_step("Serve shut down", started)
        else:
            say_step("cut short: Serve had not shut down", started)

    def ray_is_up(self) -> bool:
        return self.run.ray is not None and self.run.ray.process.poll() is None

    def end_child(self, child: Child | None) -> None:
        if child is None or child.process.poll() is not None or self.run.signals.hurried:
            return
        started = time.monotonic()
        processes.send_signal(child.process.pid, signal.SIGTERM)
        if self.patiently(lambda: child.process.poll() is not None, CHILD_EXIT_S):
            say_step(f"{child.name} ended", started)
        else:
            say_step(f"cut short: {child.name} did not end on SIGTERM", started)

    def end_leftovers(self) -> None:
        """Workers end by themselves once Ray is gone; end those that do not."""
        if not self.run.signals.hurried:
            self.patiently(self.nothing_is_left, ORPHANS_EXIT_S)
        ended = processes.end_descendants(
            self.run.children, 0 if self.run.signals.hurried else TERM_S, KILL_S
        )
        if ended:
            say(f"  left over, ended now: {', '.join(ended)}")

    def release_memory(self, segments: set[Path]) -> None:
        released = processes.release_shared_memory(segments)
        if released:
            say(f"  left over, removed now: {', '.join(map(str, released))}")

    def nothing_is_left(self) -> bool:
        processes.reap_orphans(self.run.children)
        return not processes.descendants(os.getpid())

    def patiently(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Wait for ``done``, or until a second signal."""
        processes.wait_until(lambda: self.run.signals.hurried or done(), limit_s)
        return done()

    def check_port(self) -> None:
        host, port = self.run.config.host, self.run.config.port
        if not processes.wait_until(lambda: port_is_free(host, port), PORT_FREE_S):
            say(f"  {port_taken(self.run.config)}")

    def clear_folder(self, keep: bool) -> None:
        folder = self.run.folder
        if keep:
            folder.clear_all_but_logs()
            say(f"  logs are kept in {folder.root}")
        else:
            shutil.rmtree(folder.root, ignore_errors=True)
