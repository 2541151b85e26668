"""A gateway in a process of its own, which a test may kill; the owner of its accounts is in the test's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.accounts import with_accounts
from support.handles import LocalMethod

from serve_app.accounts.calls import ACCOUNTS
from serve_app.wire.calls import Wire

LENGTH = 4


async def _read(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH)))


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(LENGTH) + data


class FarHandle:
    """What stands for the deployment's handle: each call is a connection to the owner's socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._wire = Wire(ACCOUNTS)

    def __getattr__(self, method: str) -> LocalMethod:
        return LocalMethod(lambda *args: self._call(method, args))

    async def _call(self, method: str, args: tuple[Any, ...]) -> Any:
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            writer.write(_framed(method.encode()) + _framed(self._wire.encode_arguments(method, args)))
            return self._wire.decode_result(method, await _read(reader))
        finally:
            writer.close()


@asynccontextmanager
async def reachable(owner: Any, path: Path) -> AsyncIterator[None]:
    """The owner answers at a Unix socket."""
    wire = Wire(ACCOUNTS)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method = (await _read(reader)).decode()
            result = await getattr(owner, method)(*wire.decode_arguments(method, await _read(reader)))
            writer.write(_framed(wire.encode_result(method, result)))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the gateway was killed
        finally:
            writer.close()

    server = await asyncio.start_unix_server(answer, path)
    try:
        yield
    finally:
        server.close()


async def main(path: str) -> None:
    """Print the address, and serve until the standard input ends."""
    async with with_accounts(FarHandle(path)) as running:  # type: ignore[arg-type]
        print(running.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
