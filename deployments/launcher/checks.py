"""Checks before any process is started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from deployments.launcher import processes
from deployments.launcher.config import ConfigError, ServeConfig, read_config
from deployments.launcher.downloads import HUB_NAME, hub_is_off, not_fetched
from deployments.launcher.errors import StartError
from deployments.launcher.options import Options
from deployments.launcher.plan import absent_commands
from deployments.launcher.ports import port_is_free
from deployments.launcher.terminal import say, say_step
from serve_app.machine.checks import commands_absent, reinstall_ray

CHECK_TIMEOUT_S = 60.0


def read_checked_config(options: Options) -> ServeConfig:
    """The config, after every check that needs no running process.

    Raises:
        StartError: the settings or the port cannot be used, or Ray cannot be started.
    """
    started = time.monotonic()
    check_commands(sys.executable)
    if options.check:
        check_settings(options.config)
        say_step("settings checked", started)
    try:
        config = read_config(options.config, options.port)
    except ConfigError as error:
        raise StartError(str(error)) from error
    if options.check:
        check_models(config, os.environ)
    if not port_is_free(config.host, config.port):
        raise StartError(f"{port_taken(config)}: end that process, or choose another port with --port")
    return config


def check_commands(python: str) -> None:
    """Raises: StartError: a command by which Ray is started is not beside ``python``."""
    absent = absent_commands(python)
    if absent:
        raise StartError(f"{commands_absent(absent)}: {reinstall_ray(python, version('ray'))}")


def check_settings(config: Path) -> None:
    """Run the application's check in a separate process, because its imports take seconds.

    Raises:
        StartError: wrong settings; the message names file, key, value and expectation.
    """
    command = [sys.executable, "-m", "deployments.cli", "check", "--without-vllm", str(config)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=CHECK_TIMEOUT_S,
        start_new_session=True,  # only the supervisor gets the terminal's Ctrl-C
    )
    if done.returncode != 0:
        raise StartError(done.stderr.strip())
    for warning in done.stderr.splitlines():
        say(f"  {warning}")


def check_models(config: ServeConfig, environment: Mapping[str, str]) -> None:
    """An engine would find out only after Ray, vLLM and its processes have started, and try again.

    Raises:
        StartError: a model by its name on the hub is not on this machine, and the hub is switched off.
    """
    if not hub_is_off(environment) or config.sets_hub:
        return
    absent = [each for each in not_fetched(config.remote_sources, environment) if HUB_NAME.match(each)]
    if absent:
        raise StartError(
            f"{config.path}: {', '.join(absent)}: not on this machine, and HF_HUB_OFFLINE keeps it from "
            "being fetched: unset that, mount a volume that has it as HF_HOME, or name a folder as its source"
        )


def port_taken(config: ServeConfig) -> str:
    holder = processes.listener_on(config.port)
    return f"port {config.port} is taken" + (f" by {holder}" if holder else "")
