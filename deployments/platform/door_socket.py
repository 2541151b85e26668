"""The way from a node's HAProxy to its gateways: a Unix socket beside each gateway's TCP port.

Both ends of a chunk pay less than through TCP on loopback (docs/benchmarks.md). A gateway of another node is
reached by TCP, and so is one whose socket could not be made. The folder may be entered by its owner alone.

Of uvicorn's ``Server`` (checked against 0.54) this replaces ``startup``, which Serve has no hook around, and
adds to ``servers``, which ``shutdown`` closes. When uvicorn moves, look at these two;
``tests/deployments/platform/test_door_socket.py`` says whether they still hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import re
import socket
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import uvicorn
from ray import serve
from ray.serve.exceptions import RayServeException

from deployments.platform.http_protocol import connection_of
from serve_app.wire.private_address import MAX_SOCKET_PATH

MARK: Final = "_promptly_opens_doors"
SUFFIX: Final = ".sock"
BACKLOG: Final = 4096
"""Connections that wait to be accepted. Where the queue is full, a connection to a Unix socket fails at once,
while TCP tries again. So where Linux bounds it to less, there is no socket."""

LIMIT_OF_BACKLOG: Final = Path("/proc/sys/net/core/somaxconn")
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
PLAIN_PATH: Final = re.compile(r"[\w./-]+", re.ASCII)
"""HAProxy's config needs no quotes around it."""

logger = logging.getLogger("ray.serve")


def door_folder() -> Path | None:
    """The folder of this node's sockets; ``None`` where it is not ours alone, cannot be made or named.
    Machines that share the folder for temporary files have one each: a socket of another one looks dead."""
    try:
        boot = BOOT_ID.read_text(encoding="ascii")[:8]
        folder = Path(tempfile.gettempdir()) / f"promptly-door-{os.geteuid()}-{boot}"
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError as error:
        logger.info("no sockets between HAProxy and gateways: %s", error)
        return None
    if not PLAIN_PATH.fullmatch(str(folder)):
        logger.info("no sockets between HAProxy and gateways: the name %s would need quotes", folder)
        return None
    is_ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077
    if not is_ours:
        logger.warning("%s is not ours alone: HAProxy reaches gateways by TCP", folder)
    return folder if is_ours else None


def doors(folder: Callable[[], Path | None] = door_folder) -> Mapping[str, Path]:
    """The sockets there, by the id of the replica that listens."""
    at = folder()
    return {} if at is None else {path.stem: path for path in at.glob(f"*{SUFFIX}")}


def replica_id() -> str | None:
    """The id by which HAProxy's config names the Serve replica of this process; ``None`` outside of one."""
    try:
        return serve.get_replica_context().replica_id.unique_id
    except RayServeException:
        return None


def open_doors(
    server: Any = uvicorn.Server,
    *,
    named: Callable[[], str | None] = replica_id,
    folder: Callable[[], Path | None] = door_folder,
) -> None:
    """Every server that this process starts from now on, and that is none of its subclasses, listens on a
    Unix socket too. A second call does no harm."""
    if MARK in vars(server):  # not in a class that it was made from
        return
    started = server.startup

    @functools.wraps(started)
    async def startup(self: Any, sockets: list[socket.socket] | None = None) -> None:
        await started(self, sockets)
        name = named() if type(self) is server else None
        at = None if name is None else folder()
        if at is not None:
            await _open(self, at / f"{name}{SUFFIX}")

    server.startup = startup
    setattr(server, MARK, True)


async def _open(server: Any, path: Path) -> None:
    if server.config.is_ssl:
        return  # the config that Serve writes for HAProxy speaks TLS to it then
    try:
        if int(LIMIT_OF_BACKLOG.read_text(encoding="ascii")) < BACKLOG:
            raise OSError(f"{LIMIT_OF_BACKLOG} is less than {BACKLOG}")
        listening = _listening(path)
    except OSError as error:
        logger.info("HAProxy reaches this gateway by TCP: %s: %s", path, error)
        return
    loop = asyncio.get_running_loop()
    made = await loop.create_unix_server(lambda: connection_of(server), sock=listening, backlog=BACKLOG)
    server.servers.append(_Door(made, path))


def _listening(path: Path) -> socket.socket:
    """Raises: OSError: it cannot be made there."""
    for other in path.parent.glob(f"*{SUFFIX}"):
        if not _is_open(other):  # its replica was killed
            other.unlink(missing_ok=True)
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise OSError("the path is too long for a socket")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _is_open(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:  # its queue is full
            return True
    return True


class _Door:
    """The server of the socket, which uvicorn closes with its own ones."""

    def __init__(self, server: asyncio.Server, path: Path) -> None:
        self._server = server
        self._path = path

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._server.close()

    async def wait_closed(self) -> None:
        await self._server.wait_closed()
