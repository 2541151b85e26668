"""A Postgres server of Debian's package in a temporary folder, reached over a unix socket only."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

DEBIANS = Path("/usr/lib/postgresql")
USER = "postgres"
START_S = "120"


class NoPostgres(Exception):
    """It is not installed here, or may not be started; the message says which."""


def programs() -> Path:
    """The folder of ``initdb`` and ``pg_ctl``. Raises: NoPostgres."""
    found = sorted(DEBIANS.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3].partition(".")[0]))
    named = shutil.which("initdb")
    if found:
        return found[-1].parent
    if named is None:
        raise NoPostgres("Postgres is not installed (Debian: apt-get install postgresql)")
    return Path(named).resolve().parent


@dataclass(frozen=True)
class PostgresServer:
    programs: Path
    folder: Path

    def url(self, schema: str) -> str:
        return f"postgresql://{USER}@/postgres?host={self.folder}&options=-csearch_path%3D{schema}"

    def new_schema(self) -> str:
        """The URL of an empty one."""
        schema = f"s{uuid4().hex[:12]}"
        self.run(f"CREATE SCHEMA {schema}")
        return self.url(schema)

    def run(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url("public"), autocommit=True) as connection:
            connection.execute(statement)

    def start(self) -> None:
        settings = f"-k {self.folder} -c listen_addresses= -c fsync=off -c max_connections=40"
        self._ctl("start", "-w", "-t", START_S, "-o", settings, "-l", str(self.folder / "log"))

    def stop(self) -> None:
        """At once: connections are cut."""
        self._ctl("stop", "-w", "-m", "immediate")

    def _ctl(self, *arguments: str) -> None:
        _as_its_user([str(self.programs / "pg_ctl"), "-D", str(self.folder / "data"), *arguments])


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Raises: NoPostgres."""
    with tempfile.TemporaryDirectory(prefix="pg-") as made:
        folder = Path(made)
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
        server = PostgresServer(programs(), folder)
        initdb = [str(server.programs / "initdb"), "-D", str(folder / "data"), "-U", USER]
        _as_its_user([*initdb, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"])
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _as_its_user(command: list[str]) -> None:
    """Postgres does not run as root."""
    if os.geteuid() == 0:
        command = ["runuser", "-u", USER, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=180)
    if done.returncode != 0:
        raise NoPostgres(f"{command}: {done.stdout[-500:]}{done.stderr[-500:]}")
