"""Commands and environment variables of a start. Nothing here starts a process."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from deployments.launcher.config import ServeConfig, models_are_local
from deployments.launcher.folder import StartFolder
from deployments.launcher.ports import LOOPBACK, Ports
from deployments.platform.door_secret import DOOR_SECRET_FILE
from deployments.platform.secret_environment import FILE as SECRETS_FILE
from deployments.platform.secret_environment import with_secrets
from serve_app.request.admin_token import FILE_VARIABLE, TOKEN_VARIABLE, write_secret

RAY = "ray"
COMMANDS = (RAY,)
"""Programs of the package ray."""

# Ray places replicas by *logical* CPUs: an engine takes one for its replica and one for each worker, besides
# the gateways. Separate settings limit the real threads, so a small machine can offer more logical CPUs
# than it has cores.
MIN_LOGICAL_CPUS = 16

OTHER_CLUSTER = frozenset({"RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_NAMESPACE"})
"""The user's variables that would connect this start's processes to another cluster."""

GIVEN_PORT = "PROMPTLY_GIVEN_PORT"
"""The variable with a start's own HTTP port. Without it `promptly apply` would take the port for a change."""

OWN_SECRETS = frozenset({TOKEN_VARIABLE})
"""No process of the start gets these: the process that needs the secret reads it from a file."""

# How long a stopping replica still answers, so that proxies can drop it. HAProxy on the same machine learns
# of it within a second; Serve's default of 30 s is meant for cloud load balancers.
MIN_DRAINING_S = 2


def ray_command(ports: Ports, folder: StartFolder, cores: int) -> list[str]:
    """Starts a Ray head for this start only."""
    return [
        venv_program(RAY),
        "start",
        "--head",
        "--block",
        f"--node-ip-address={LOOPBACK}",
        f"--port={ports.gcs}",
        f"--dashboard-host={LOOPBACK}",
        f"--dashboard-port={ports.dashboard}",
        f"--dashboard-agent-listen-port={ports.dashboard_agent}",
        f"--ray-client-server-port={ports.ray_client}",
        f"--metrics-export-port={ports.ray_metrics}",
        f"--num-cpus={max(MIN_LOGICAL_CPUS, cores)}",
        f"--temp-dir={folder.ray}",
        "--disable-usage-stats",
        "--log-style=record",
        "--log-color=false",
    ]


def serve_command(config: ServeConfig) -> list[str]:
    """It waits for a line: see the module. As for a script, Python's own modules come before those of the
    folder in which the start was asked for (``-P``)."""
    return [sys.executable, "-P", "-m", "deployments.launcher.serve_run", str(config.path)]


def venv_program(name: str, python: str = sys.executable) -> str:
    """A command of the virtual environment that the Python belongs to."""
    return str(Path(python).parent / name)


def absent_commands(python: str = sys.executable) -> tuple[str, ...]:
    """Paths of what a start runs, in the folder of ``python``, that are no programs there."""
    return tuple(path for name in COMMANDS if shutil.which(path := venv_program(name, python)) is None)


def ray_environment(base: Mapping[str, str], folder: StartFolder, config: ServeConfig) -> dict[str, str]:
    """The environment of Ray, and so of every replica.

    The user's variables stay, except those that name another cluster or would make two starts share a file.
    """
    # Every process of Ray inherits these variables, so secrets are left out.
    left_out = OTHER_CLUSTER | OWN_SECRETS | config.secret_variables
    env = {name: value for name, value in base.items() if name not in left_out}
    env.setdefault("RAY_SERVE_ENABLE_HA_PROXY", "1")
    env.setdefault("RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S", str(MIN_DRAINING_S))
    # By default Ray runs replicas, and so HAProxy and the engines, at niceness 15, after other programs.
    env.setdefault("RAY_worker_niceness", "0")
    # By default Serve's controller loops ten times a second, which takes a fifth of the CPU time of an idle
    # start; an engine on CPUs needs that time.
    env.setdefault("RAY_SERVE_CONTROL_LOOP_INTERVAL_S", "0.5")
    # Replicas send Serve's counters to Ray's agent once a second, not ten times: scrapers read every ten
    # seconds.
    env.setdefault("RAY_SERVE_METRICS_EXPORT_INTERVAL_MS", "1000")
    env.setdefault("RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR", str(folder.dashboards))
    if models_are_local(config):
        env.setdefault("HF_HUB_OFFLINE", "1")
    # Without it, Serve answers 500 to header bytes that are not UTF-8; see the module.
    env.setdefault(
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH", "deployments.platform.ingress_middleware:middlewares"
    )
    # Makes Serve's HAProxy safe for the open network and restarts it when it dies; see the module.
    env.setdefault("RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH", "deployments.platform.front_door:install")
    env |= loopback_only(folder)
    return env | {
        "RAY_USAGE_STATS_ENABLED": "0",
        FILE_VARIABLE: str(folder.admin_token),
        "TMPDIR": str(folder.temp),
        SECRETS_FILE: str(folder.secrets),
        DOOR_SECRET_FILE: str(folder.door_secret),
        # Ray would wait until Serve has moved replicas to another node; Serve is already shut down.
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        # No node joins this cluster: a replica without room now will never have room.
        "PROMPTLY_FIXED_CLUSTER": "1",
    }


def loopback_only(folder: StartFolder) -> dict[str, str]:
    """Ray on the loopback interface, with a token: any process that reaches Ray's ports can run code.

    Ray replaces a node address of 127.0.0.1 by an outside one unless this variable says that the cluster is
    one machine; its name comes from the systems where that is the default. Serve still binds one gRPC port
    per replica on all interfaces; like all others, it requires the token.
    """
    return {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder.token),
    }


def client_settings(ports: Ports, folder: StartFolder) -> dict[str, str]:
    """Variables for commands and tests that connect to this start's Ray."""
    return loopback_only(folder) | {
        "RAY_ADDRESS": f"{LOOPBACK}:{ports.gcs}",
        "RAY_API_SERVER_ADDRESS": dashboard_url(ports),
        "RAY_DASHBOARD_ADDRESS": dashboard_url(ports),
    }


def dashboard_url(ports: Ports) -> str:
    return f"http://{LOOPBACK}:{ports.dashboard}"


def write_secrets(base: Mapping[str, str], folder: StartFolder, config: ServeConfig) -> None:
    """Write the keys that the application reads from a file, because Ray's environment does not hold them.

    Raises: SettingsError: the user's own file of secrets cannot be used.
    """
    given = with_secrets(base)
    found = {name: given[name] for name in config.secret_variables if name in given}
    descriptor = os.open(folder.secrets, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(found, file)


def write_client_settings(ports: Ports, folder: StartFolder, http_port: int | None = None) -> None:
    """``http_port``: the one that the start was given in the place of its file's."""
    settings = client_settings(ports, folder)
    if http_port is not None:
        settings[GIVEN_PORT] = str(http_port)
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()]
    lines.append(f"export {TOKEN_VARIABLE}={shlex.quote(folder.admin_token.read_text(encoding='utf-8'))}\n")
    write_secret(folder.settings, "".join(lines))


def metrics_url(ports: Ports) -> str:
    return f"http://{LOOPBACK}:{ports.ray_metrics}/metrics"


def proxy_metrics_url(ports: Ports) -> str:
    return f"http://{LOOPBACK}:{ports.haproxy_metrics}/metrics"


def logical_cores() -> int:
    return len(os.sched_getaffinity(0))
