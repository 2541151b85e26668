"""The audit log and the one thread that writes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from deployments.accounts.audit_log import AuditLog
from serve_app.accounts.keys import AccountsError
from serve_app.audit import AuditEvent, AuditPage, Head
from serve_app.settings import AccountSettings

T = TypeVar("T")


class Auditing:
    """The log is opened at the first call; a failed call tries it again."""

    def __init__(self, folder: Path, settings: AccountSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._log: AuditLog | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-write")

    async def write(self, event: AuditEvent) -> Head:
        """The line is on the disk when this returns. Raises: AccountsError: there is no line."""
        return await self._run(lambda: self._opened().write(event))

    async def newest(self, count: int) -> AuditPage:
        """Raises: AccountsError."""
        return await self._run(lambda: AuditPage(tuple(self._opened().newest(count)), self._opened().head))

    async def close(self) -> None:
        """Ends after the calls that run now."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
        self._thread.shutdown(wait=False)

    def _opened(self) -> AuditLog:
        if self._log is None:
            settings = self._settings
            self._log = AuditLog(
                self._folder, settings.audit_file_bytes, settings.audit_files, now=time.time()
            )
        return self._log

    def _end(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (OSError, RuntimeError) as error:
            raise AccountsError(f"audit log: {error}") from error
