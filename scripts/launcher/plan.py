"""What a start consists of, as values: the config, the ports, the folder, the commands, the environment.

Nothing here starts a process.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import shlex
import socket
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from deployments.platform.secret_environment import FILE as SECRETS_FILE
from deployments.platform.secret_environment import with_secrets
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.request.admin_token import FILE_VARIABLE, TOKEN_VARIABLE, make_token, write_secret

LOOPBACK = "127.0.0.1"
ALL_INTERFACES = frozenset({"0.0.0.0", "::"})
DEFAULT_HTTP_HOST = "0.0.0.0"  # Serve's own default
DEFAULT_HTTP_PORT = 8000  # Serve's own default
METRICS_PORT = 9102
"""Where Prometheus finds this start: Ray's, Serve's and vLLM's own figures."""

# Below the range that Linux takes the ports of outgoing connections from (32768 and up) and below the one
# that Serve gives its replicas (30000 to 31000): nothing takes a port between our pick and its use.
FREE_PORT_RANGE = range(20_000, 30_000)

# Ray places replicas by *logical* CPUs and reserves them per placement bundle: an engine asks for one for
# its replica and one for each worker, on top of the gateways. The application's real threads are bounded
# by their own settings, so a small machine offers more logical CPUs than it has cores.
MIN_LOGICAL_CPUS = 16

OTHER_CLUSTER = frozenset({"RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_NAMESPACE"})
"""Variables of the user's that would point this start's processes at another cluster."""

OWN_SECRETS = frozenset({TOKEN_VARIABLE})
"""What no process of the start needs in its environment: the one that reads it is told the file's path."""

# How long a replica goes on answering after it was told to stop, so that proxies can drop it. HAProxy on
# the same machine hears of it within a second; Serve's default of 30 s is meant for cloud load balancers.
MIN_DRAINING_S = 2


class ConfigError(ValueError):
    """The Serve config file cannot be used; the message names file, key and expectation."""


@dataclass(frozen=True)
class ServeConfig:
    """The part of a Serve config file that the supervisor needs."""

    path: Path
    host: str
    port: int
    route_prefix: str
    model_id: str | None
    model_sources: tuple[str, ...]
    secret_variables: frozenset[str] = frozenset()
    needs_admin_token: bool = False
    needs_key: bool = False
    tls: bool = False

    @property
    def url(self) -> str:
        """Where a client on this machine reaches the application."""
        host = LOOPBACK if self.host in ALL_INTERFACES else self.host
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.route_prefix.rstrip('/')}"


@dataclass(frozen=True)
class Ports:
    """Ports that this start takes beside the HTTP port."""

    gcs: int
    dashboard: int
    dashboard_agent: int
    ray_client: int
    ray_metrics: int
    haproxy_metrics: int
    haproxy_stats: int
    fallback_proxy: int


@dataclass(frozen=True)
class StartFolder:
    """Everything this start writes; only this user can read it.

    Short names: a unix socket's path holds at most 107 bytes, and Ray and Serve put folders of 40 to 60
    characters between this folder and their sockets.
    """

    root: Path

    @classmethod
    def create(cls) -> StartFolder:
        folder = cls(Path(tempfile.mkdtemp(prefix="promptly-", dir="/tmp")))
        for child in (folder.ray, folder.haproxy, folder.temp, folder.logs):
            child.mkdir()
        write_secret(folder.token, secrets.token_hex(32))
        write_secret(folder.admin_token, os.environ.get(TOKEN_VARIABLE) or make_token())
        return folder

    @property
    def token(self) -> Path:
        """The secret that every request to this start's Ray carries."""
        return self.root / "token"

    @property
    def secrets(self) -> Path:
        """The keys that the settings name by variable; see deployments/platform/secret_environment.py."""
        return self.root / "secrets.json"

    @property
    def admin_token(self) -> Path:
        """What opens ``/admin`` where no key is asked for."""
        return self.root / "admin-token"

    @property
    def settings(self) -> Path:
        """A shell file that points the commands ``ray`` and ``serve`` at this start."""
        return self.root / "env"

    @property
    def ray(self) -> Path:
        return self.root / "ray"

    @property
    def haproxy(self) -> Path:
        return self.root / "h"

    @property
    def temp(self) -> Path:
        return self.root / "t"

    @property
    def logs(self) -> Path:
        return self.root / "logs"


def read_config(path: Path, port: int | None = None) -> ServeConfig:
    """The config file, with ``port`` in place of its own if given.

    Raises:
        ConfigError: no Serve config of at least one application.
    """
    document = load_document(path)
    http = document.get("http_options") or {}
    applications = document.get("applications")
    if not applications:
        raise ConfigError(f"{path}: applications = {applications!r}: expected a list of applications")
    args = applications[0].get("args") or {}
    return ServeConfig(
        path=path,
        host=http.get("host") or DEFAULT_HTTP_HOST,
        port=port or http.get("port") or DEFAULT_HTTP_PORT,
        route_prefix=applications[0].get("route_prefix") or "/",
        model_id=next((model.get("id") for model in args.get("models") or []), None),
        model_sources=tuple(model_sources(args)),
        secret_variables=frozenset(secret_variables(document)),
        needs_admin_token=args.get("auth", "loopback") == "loopback",
        needs_key=isinstance(args.get("auth"), Mapping),
        tls=bool((args.get("proxy") or {}).get("tls_certificate")),
    )


def load_document(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected a Serve config file (a mapping)")
    return document


def model_sources(args: Any) -> Iterator[str]:
    """Everything that is loaded here: models, drafts, adapters, tokenizers of their own, the embedder, a
    cross encoder. Not what an upstream serves, nor a name that a rule only compares.

    The settings are not checked yet: what has another shape is passed over.
    """
    for model in _list(args, "models"):
        yield from _texts(_at(model, "source"), _at(model, "engine", "speculation", "model"))
        adapters = _at(model, "engine", "lora", "adapters")
        yield from _texts(*(adapters.values() if isinstance(adapters, Mapping) else ()))
        yield from _texts(*(_at(model, "engine", "options", name) for name in SOURCE_OPTIONS))
    yield from _texts(_at(args, "embedder", "source"), _at(args, "cache", "cross_encoder", "source"))


SOURCE_OPTIONS = ("tokenizer", "hf_config_path", "generation_config_path")
"""vLLM's arguments that name another repository."""


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _list(value: Any, key: str) -> list[Any]:
    found = _at(value, key)
    return found if isinstance(found, list) else []


def _texts(*values: Any) -> Iterator[str]:
    return (value for value in values if isinstance(value, str))


def secret_variables(value: Any) -> Iterator[str]:
    """The variables that hold keys: what the settings `key_env`, `keys_env` and their like name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if str(key).endswith(("key_env", "keys_env")) and isinstance(inner, str):
                yield inner
            else:
                yield from secret_variables(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from secret_variables(inner)


def write_secrets(base: Mapping[str, str], folder: StartFolder, config: ServeConfig) -> None:
    """Where the application finds the keys that Ray's environment does not hold; the user's own file first.

    Raises: SettingsError: the user's own file cannot be used.
    """
    given = with_secrets(base)
    found = {name: given[name] for name in config.secret_variables if name in given}
    descriptor = os.open(folder.secrets, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(found, file)


def models_are_local(config: ServeConfig) -> bool:
    """Every model is a folder on this machine: the hub need not be asked."""
    store = ModelStore(default_cache_dir())
    return bool(config.model_sources) and all(
        Path(store.resolve(source)).is_dir() for source in config.model_sources
    )


def config_to_run(config: ServeConfig, folder: StartFolder) -> ServeConfig:
    """The config itself, or a copy of it in the start's folder when ``--port`` changes its port."""
    document = load_document(config.path)
    http = document.setdefault("http_options", None) or {}
    if http.get("port", DEFAULT_HTTP_PORT) == config.port:
        return config
    document["http_options"] = {**http, "port": config.port}
    copy = folder.root / config.path.name
    copy.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return replace(config, path=copy)


def port_is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier start that linger in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(*usual: int, taken: Collection[int] = ()) -> int:
    """A port that nothing listens on, on any interface: a ``usual`` one, else one at random outside
    the ranges that the system and Serve give away by themselves. None of those ``taken``."""
    others = random.sample(FREE_PORT_RANGE, len(FREE_PORT_RANGE))
    candidates = (port for port in [*usual, *others] if port not in taken)
    return next(port for port in candidates if port_is_free(DEFAULT_HTTP_HOST, port))


def pick_ports(taken: frozenset[int] = frozenset()) -> Ports:
    """The usual ports where they are free (they are in bookmarks and scrapers), others at random."""
    picked = set(taken)

    def pick(*usual: int) -> int:
        port = free_port(*usual, taken=picked)
        picked.add(port)
        return port

    return Ports(
        gcs=pick(),
        dashboard=pick(8265),
        dashboard_agent=pick(),
        ray_client=pick(),
        ray_metrics=pick(METRICS_PORT),
        haproxy_metrics=pick(9101),
        haproxy_stats=pick(8404),
        fallback_proxy=pick(),
    )


def ray_command(ports: Ports, folder: StartFolder, cores: int) -> list[str]:
    """A Ray head of this start alone."""
    return [
        venv_program("ray"),
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
    return [venv_program("serve"), "run", str(config.path)]


def venv_program(name: str) -> str:
    """A command of the virtual environment that this Python belongs to."""
    return str(Path(sys.executable).parent / name)


def ray_environment(base: Mapping[str, str], folder: StartFolder, config: ServeConfig) -> dict[str, str]:
    """The environment of Ray, and so of every replica.

    What the user set stays, except what names another cluster or would make two starts share a file.
    """
    # Every process of Ray's would have the secrets.
    left_out = OTHER_CLUSTER | OWN_SECRETS | config.secret_variables
    env = {name: value for name, value in base.items() if name not in left_out}
    env.setdefault("RAY_SERVE_ENABLE_HA_PROXY", "1")
    env.setdefault("RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S", str(MIN_DRAINING_S))
    # Ray runs replicas, and so HAProxy and the engines, at niceness 15: any other program would come first.
    env.setdefault("RAY_worker_niceness", "0")
    # By default Serve's controller looks at everything ten times a second, which is a fifth of what an idle
    # start costs; an engine on CPUs has to share these with it.
    env.setdefault("RAY_SERVE_CONTROL_LOOP_INTERVAL_S", "0.5")
    # Serve's counters of every replica go to Ray's agent once a second, not ten times: they are scraped every
    # ten seconds.
    env.setdefault("RAY_SERVE_METRICS_EXPORT_INTERVAL_MS", "1000")
    if models_are_local(config):
        env.setdefault("HF_HUB_OFFLINE", "1")
    # Serve would answer 500 to header bytes that are no UTF-8; see the module.
    env.setdefault(
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH", "deployments.platform.ingress_middleware:middlewares"
    )
    # Serve's HAProxy, fit for strangers, and started again when it dies; see the module.
    env.setdefault("RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH", "deployments.platform.front_door:install")
    env |= loopback_only(folder)
    return env | {
        "RAY_USAGE_STATS_ENABLED": "0",
        FILE_VARIABLE: str(folder.admin_token),
        "TMPDIR": str(folder.temp),
        SECRETS_FILE: str(folder.secrets),
        # Ray would wait for Serve to move replicas to another node; Serve is shut down by then.
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        # Nothing joins this cluster: what has no room now never has.
        "PROMPTLY_FIXED_CLUSTER": "1",
    }


def loopback_only(folder: StartFolder) -> dict[str, str]:
    """Ray's ports run code for whoever reaches them, and no other machine joins a local start.

    Ray replaces a node address of 127.0.0.1 by an outside one unless it is told that this cluster is one
    machine; the variable's name comes from the systems where that is the default. Serve still binds one gRPC
    port per replica on all interfaces: those, like all others, answer only to the token.
    """
    return {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder.token),
    }


def client_settings(ports: Ports, folder: StartFolder) -> dict[str, str]:
    """What a command or a test that connects to this start's Ray needs in its environment."""
    return loopback_only(folder) | {
        "RAY_ADDRESS": f"{LOOPBACK}:{ports.gcs}",
        "RAY_API_SERVER_ADDRESS": dashboard_url(ports),
        "RAY_DASHBOARD_ADDRESS": dashboard_url(ports),
    }


def dashboard_url(ports: Ports) -> str:
    return f"http://{LOOPBACK}:{ports.dashboard}"


def write_client_settings(ports: Ports, folder: StartFolder) -> None:
    lines = [
        f"export {name}={shlex.quote(value)}\n" for name, value in client_settings(ports, folder).items()
    ]
    lines.append(f"export {TOKEN_VARIABLE}={shlex.quote(folder.admin_token.read_text(encoding='utf-8'))}\n")
    write_secret(folder.settings, "".join(lines))


def metrics_url(ports: Ports) -> str:
    return f"http://{LOOPBACK}:{ports.ray_metrics}/metrics"


def admin_command(config: ServeConfig, folder: StartFolder) -> str:
    """The token is read where the command runs: it does not end in a shell's history."""
    return f'curl {config.url}/admin/fleet -H "Authorization: Bearer $(cat {folder.admin_token})"'


def demo_commands(config: ServeConfig) -> list[tuple[str, str]]:
    """Commands to paste once the application is ready, each with what it shows."""
    question, rephrased = "What is the capital of France?", "Can you tell me the capital of France?"
    return [
        ("a streamed answer:", chat_command(config, question, "-N")),
        ("the same again comes from the cache (x-cache: exact):", chat_command(config, question, "-N -i")),
        ("so does the same in other words (x-cache: semantic):", chat_command(config, rephrased, "-N -i")),
    ]


def chat_command(config: ServeConfig, question: str, flags: str) -> str:
    body = (
        f'{{"model": "{config.model_id}", "temperature": 0, "stream": true, '
        f'"messages": [{{"role": "user", "content": "{question}"}}]}}'
    )
    trusting = " -k" if config.tls else ""  # the certificate may name another host than this one
    key = ' -H "Authorization: Bearer $KEY"' if config.needs_key else ""
    return (
        f"curl {flags}{trusting} {config.url}/v1/chat/completions{key} -H 'Content-Type: application/json' "
        f"-d {shlex.quote(body)}"
    )


def logical_cores() -> int:
    return len(os.sched_getaffinity(0))
