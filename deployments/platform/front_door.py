"""HAProxy as Serve runs it, hardened, and started again at once when it dies.

Serve loads this where the variable ``RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH`` is
``deployments.platform.front_door:install`` for whatever starts it (``make serve`` sets it; for clusters see
docs/operations.md). It holds for every node, since the controller starts each node's proxy.

Names of Ray Serve that are not public, checked against Ray 2.60; watch them when Ray moves:

- ``ray.serve._private.controller.HAProxyManager``: the actor that the controller starts on each node. It is
  replaced by a subclass before the controller reads the name.
- ``ray.serve._private.haproxy.HAProxyApi``: what the actor starts and reloads HAProxy with; the actor's
  constructor looks the name up, and finds :class:`FrontDoor`. Of it: ``_proc``, the running process,
  ``_generate_config_file_internal`` and, of the actor, ``_reload_lock``.
- ``ray.serve._private.haproxy.RAY_SERVE_HAPROXY_BINARY_PATH``: the binary, here a wrapper around it.

Without it Serve looks every ten seconds, three times, before it replaces a proxy whose HAProxy is gone: 24 to
31 s of refused connections.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray.serve._private import controller, haproxy
from ray.serve._private.haproxy import HAProxyApi, HAProxyManager

from deployments.platform.door_secret import load_door_secret
from deployments.platform.door_socket import doors
from serve_app.front_door import ProxyFiles, error_pages, harden, http_text, with_json_errors
from serve_app.settings.load import proxy_settings
from serve_app.settings.proxy import ProxySettings

CONFIG_FILE = "PROMPTLY_CONFIG_FILE"
"""Names the Serve config file whose `proxy` section holds for the proxies; unset: the defaults."""

KEPT_VARIABLES = ("PATH", "LANG", "TZ", "TMPDIR")
"""The variables of Ray's environment that HAProxy inherits; others may hold keys."""

RETRY_S = 0.5

VERSION_TIMEOUT_S = 10.0
"""Far more than HAProxy needs to print its version."""

logger = logging.getLogger("ray.serve")


def runs(program: Path) -> bool:
    """The program starts and says its version. A folder that is mounted ``noexec`` lets none start."""
    try:
        subprocess.run([program, "-v"], check=True, capture_output=True, timeout=VERSION_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def install() -> None:
    """Serve's callback in its controller: from now on the controller starts this module's proxies."""
    serve_controller: Any = controller
    serve_controller.HAProxyManager = ray.remote(num_cpus=0)(FrontDoorManager)


class FrontDoor(HAProxyApi):
    """One node's HAProxy: Serve's config with this project's changes. ``runs``: whether a program starts
    where it lies; ``gateways``: the sockets of this node's gateways, by the id of their replica."""

    def __init__(
        self,
        *args: Any,
        settings: ProxySettings | None = None,
        runs: Callable[[Path], bool] = runs,
        gateways: Callable[[], Mapping[str, Path]] = doors,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._runs = runs
        self._gateways = gateways
        self._settings = proxy_settings(os.environ.get(CONFIG_FILE)) if settings is None else settings
        self._folder = Path(self.config_file_path).parent
        self._folder.chmod(0o700)  # Serve's socket for metrics, in it, is open to all
        self._binary = self._own_binary(Path(haproxy.get_haproxy_binary()))
        self.stopping = False

    @property
    def process(self) -> asyncio.subprocess.Process | None:
        """The HAProxy of the last start or reload."""
        return self._proc

    async def stop(self) -> None:
        self.stopping = True
        await super().stop()

    async def _start_and_wait_for_haproxy(self, *extra_args: str, **kwargs: Any) -> Any:
        module: Any = haproxy
        before = module.RAY_SERVE_HAPROXY_BINARY_PATH
        module.RAY_SERVE_HAPROXY_BINARY_PATH = str(self._command())
        try:
            return await super()._start_and_wait_for_haproxy(*extra_args, **kwargs)
        finally:
            module.RAY_SERVE_HAPROXY_BINARY_PATH = before

    def _generate_config_file_internal(self) -> None:
        super()._generate_config_file_internal()
        path = Path(self.config_file_path)
        cpus = len(os.sched_getaffinity(0))
        text = harden(path.read_text(encoding="utf-8"), self._settings, self._files(), cpus)
        _write_private(path, text.encode())

    def _files(self) -> ProxyFiles:
        """Write the files that the config names. They are written with each config, because certificates are
        renewed and folders below /tmp may be swept."""
        pages = {
            status: _write_private(self._folder / f"error-{status}.http", http_text(status, error))
            for status, error in error_pages(self._settings).items()
            if status != 404
        }
        not_found = error_pages(self._settings)[404].body()
        pages[404] = _write_private(self._folder / "error-404.json", not_found)
        return ProxyFiles(
            pages,
            owners_door=self._folder / "o.sock",
            certificate=self._certificate(),
            client_ca=_path(self._settings.tls_client_ca),
            secret=load_door_secret(os.environ),
            gateways=self._gateways(),
        )

    def _certificate(self) -> Path | None:
        """Write certificate and key into one file, as HAProxy expects."""
        if self._settings.tls_certificate is None:
            return None
        parts = [Path(self._settings.tls_certificate).read_bytes()]
        if self._settings.tls_key is not None:
            parts.append(Path(self._settings.tls_key).read_bytes())
        return _write_private(self._folder / "certificate.pem", b"\n".join(parts))

    def _own_binary(self, binary: Path) -> Path:
        """The copy of the program that answers in JSON; the program itself where no copy can
        be made."""
        program = with_json_errors(binary.read_bytes())
        if program is None:
            logger.warning("%s: HAProxy's answers to malformed requests stay HTML", binary)
            return binary
        folder = self._folder / "bin"
        folder.mkdir(exist_ok=True)
        libraries = folder / "lib"  # the program looks for them beside itself
        if not libraries.is_symlink():
            libraries.symlink_to(binary.resolve().parent / "lib")
        own = _write_private(folder / "haproxy", program, 0o700)
        if not self._runs(own):
            logger.warning("%s does not run: HAProxy's answers to malformed requests stay HTML", own)
            return binary
        return own

    def _command(self) -> Path:
        """The wrapper around the program; the program itself where the folder's mount forbids programs."""
        script = wrapper_script(str(self._binary), os.environ, shutil.which("setpriv"))
        wrapper = _write_private(self._folder / "haproxy", script.encode(), 0o700)
        if self._runs(wrapper):
            return wrapper
        logger.warning("%s does not run: HAProxy inherits the environment of Ray's processes", wrapper)
        return self._binary


def wrapper_script(binary: str, environment: Mapping[str, str], setpriv: str | None) -> str:
    """The script that Serve runs as its HAProxy. With ``exec`` it keeps the command line and the process id,
    by which Serve recognises its processes."""
    kept = [f"{name}={environment[name]}" for name in KEPT_VARIABLES if name in environment]
    follow = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
    command = shlex.join(["env", "-i", *kept, *follow, binary])
    return f"""#!/bin/sh
# HAProxy inherits no keys from Ray's environment, and ends with the Serve actor that runs it.
exec {command} "$@"
"""


class FrontDoorManager(HAProxyManager.__ray_metadata__.modified_class):  # type: ignore[misc,name-defined]
    """Serve's actor for a node's HAProxy; it restarts HAProxy as soon as it dies."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        haproxy.HAProxyApi = FrontDoor  # type: ignore[misc]  # the constructor looks it up
        super().__init__(*args, **kwargs)
        self._watching = self.event_loop.create_task(
            keep_running(self._haproxy, self._haproxy_start_task, self._reload_lock)
        )

    async def shutdown(self) -> None:
        self._watching.cancel()
        await super().shutdown()


async def keep_running(front_door: FrontDoor, started: asyncio.Future[None], reloading: asyncio.Lock) -> None:
    """Start HAProxy again whenever it dies. ``started``: its first start. ``reloading``: the lock held during
    a reload, because the old process may end before the new one is known."""
    await asyncio.wait([started])
    while (process := front_door.process) is not None:
        await process.wait()
        async with reloading:
            if front_door.stopping:
                return
            if front_door.process is process:
                logger.warning("HAProxy ended by itself (status %s): starting another", process.returncode)
                await _try_to_start(front_door)


async def _try_to_start(front_door: FrontDoor) -> None:
    try:
        await front_door.start()
    except Exception:  # the port may be free in a moment
        logger.exception("HAProxy did not start again")
        await asyncio.sleep(RETRY_S)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _write_private(path: Path, content: bytes, mode: int = 0o600) -> Path:
    """Write a file atomically, never readable by others."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
    partial.replace(path)
    return path
