"""The folder of prompts on disk: reads its files, and replaces the file of labels atomically."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from tempfile import NamedTemporaryFile

from serve_app.errors import SettingsError
from serve_app.prompts.labels import FILE, Labels
from serve_app.prompts.library import Files, labels_of
from serve_app.settings import Settings
from serve_app.settings.prompts import PromptSettings

LOCK = ".labels.lock"
Signature = Mapping[str, tuple[int, int, int]]
"""Time of change, size and inode of each file."""


def located(settings: Settings) -> Settings:
    """The settings with the folder of prompts as this process finds it: a gateway's may have another working
    directory."""
    if settings.prompts is None:
        return settings
    folder = str(PromptFolder(settings.prompts).path)
    prompts = settings.prompts.model_copy(update={"folder": folder})
    return settings.model_copy(update={"prompts": prompts})


class PromptFolder:
    """Its methods do blocking I/O."""

    def __init__(self, settings: PromptSettings) -> None:
        self._settings = settings
        self.path = Path(settings.folder).expanduser().absolute()

    def signature(self) -> Signature:
        """Raises: OSError: there is no such folder."""
        found = {}
        for paths in self._folders():
            for path in paths:
                status = path.stat()
                found[self._name(path)] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return found

    def read(self, names: Iterable[str] | None = None) -> Files:
        """The content of all files. ``names``: those that a look has found (:meth:`signature`), in its order;
        one that is gone since is an error. Raises: OSError: there is no such folder."""
        left = self._settings.max_files
        files: dict[str, bytes | SettingsError] = {}
        for prompt, group in groupby(self.signature() if names is None else names, _prompt_of):
            inside = list(group)
            left -= len(inside)
            if left >= 0:
                files |= {name: self._content(name, self.path / name) for name in inside}
            else:  # a part of a prompt's files could be a prompt without its tenants
                most = self._settings.max_files
                error = f"{prompt}: is left out, as there are more than {most} files (prompts.max_files)"
                files[inside[0]] = SettingsError(error)
        return files

    def labels(self) -> Labels:
        """Raises: SettingsError."""
        path = self.path / FILE
        return labels_of(self._content(FILE, path)) if path.exists() else Labels()

    def write_labels(self, labels: Labels) -> None:
        """Writes all or nothing, also if the machine fails meanwhile. Raises: OSError."""
        with NamedTemporaryFile("w", encoding="utf-8", dir=self.path, prefix=".labels-", delete=False) as new:
            try:
                new.write(labels.written())
                new.flush()
                os.fsync(new.fileno())
                Path(new.name).chmod(0o644)
                Path(new.name).replace(self.path / FILE)
            except BaseException:
                Path(new.name).unlink(missing_ok=True)
                raise
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time may change labels. Raises: OSError."""
        with (self.path / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _name(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def _folders(self) -> Iterator[list[Path]]:
        """The files of each prompt, and the file of labels, until there are more than may be; names that
        begin with a dot are no prompts."""
        left = self._settings.max_files
        for entry in sorted(self.path.iterdir()):
            if entry.name.startswith("."):
                continue
            inside = sorted(entry.iterdir()) if entry.is_dir() else [entry] if entry.name == FILE else []
            paths = [path for path in inside if not path.name.startswith(".") and path.is_file()]
            yield paths
            left -= len(paths)
            if left < 0:
                return

    def _content(self, name: str, path: Path) -> bytes | SettingsError:
        most = self._settings.max_file_bytes
        try:
            with path.open("rb") as file:
                content = file.read(most + 1)
        except OSError as error:
            return SettingsError(f"{name}: {error.strerror}")
        if len(content) > most:
            return SettingsError(f"{name}: is longer than {most} bytes (prompts.max_file_bytes)")
        return content


def _prompt_of(name: str) -> str:
    """The folder of a file; of the file of labels itself."""
    return name.partition("/")[0]
