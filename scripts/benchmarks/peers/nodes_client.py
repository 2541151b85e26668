"""A client of one node of ``ray_nodes``, whose proxies share a port because all nodes are on one machine."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import psutil

from benchmarks.peers.endpoint import as_admin
from benchmarks.peers.nodes_app import MODEL
from benchmarks.peers.ray_nodes import RayNodes

CONNECT_LIMIT_S = 120.0
CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]"
"""A whole stream has it."""


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class NodeClient:
    """Connections to the proxy of the node at ``address``. The kernel chooses the proxy, so one that leads to
    another node is closed, and another is opened."""

    def __init__(self, nodes: RayNodes, address: str) -> None:
        self._nodes = nodes
        self._address = address
        self._port = urlsplit(nodes.url).port or 0
        self._proxies: list[psutil.Process] = []

    async def asked(
        self, method: str, path: str, body: dict[str, Any] | None = None, on: Connection | None = None
    ) -> bytes:
        """The whole response, head and all; of a broken one what came. ``on``: a connection that is there
        already. Raises: OSError, TimeoutError."""
        reader, writer = await self.connected() if on is None else on
        data = b"" if body is None else json.dumps(body).encode()
        named = "".join(f"{name}: {value}\r\n" for name, value in as_admin().items())
        head = f"{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{named}"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        try:
            return await reader.read()
        finally:
            writer.close()

    async def chat(self, question: str, tokens: int, on: Connection | None = None) -> bytes:
        """A stream's bytes."""
        message = {"role": "user", "content": question}
        body = {"model": MODEL, "messages": [message], "max_tokens": tokens, "stream": True}
        return await self.asked("POST", CHAT, body, on)

    async def members(self) -> list[dict[str, Any]]:
        """The engines that may serve."""
        said = await self.asked("GET", "/admin/fleet")
        found: list[dict[str, Any]] = json.loads(said.partition(b"\r\n\r\n")[2])[MODEL]
        return [member for member in found if member["can_serve"]]

    async def connected(self) -> Connection:
        """It may take several tries, and each reads what the proxies have open. Raises: OSError,
        TimeoutError."""
        async with asyncio.timeout(CONNECT_LIMIT_S):
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                local = writer.get_extra_info("sockname")[1]
                if await asyncio.to_thread(self._is_there, local):
                    return reader, writer
                writer.close()

    def _is_there(self, local: int) -> bool:
        if not any(each.is_running() for each in self._proxies):
            self._proxies = processes(self._nodes, self._address, "Proxy")
        return any(
            connection.raddr and connection.raddr.port == local
            for process in self._proxies
            for connection in process.net_connections(kind="tcp")
        )


def processes(nodes: RayNodes, address: str, name: str) -> list[psutil.Process]:
    """The processes of the node at ``address`` that have ``name`` in their command line."""
    found = []
    for pid in nodes.nodes[address].pids:
        try:
            process = psutil.Process(pid)
            if name in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
