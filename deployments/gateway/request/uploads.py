"""Uploaded forms: read while they arrive, and sent on in pieces. Memory does not grow with their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deployments.gateway.request.spool import BLOCK, Spool
from serve_app.errors import BadRequest, UploadsUnavailable
from serve_app.media.forms import Form, FormReader


class Upload:
    """One form that arrives. An error is reported at its end: a client that is still sending would get a
    reset connection instead of the answer."""

    def __init__(self, content_type: str, folder: str | None) -> None:
        """Raises: BadRequest: the content type names no boundary."""
        self.file = Spool(folder)
        self._reader = FormReader(content_type, self.file.add)
        self._error: BadRequest | UploadsUnavailable | None = None

    @property
    def held(self) -> int:
        """Bytes that it has in memory at most."""
        return self.file.held + self._reader.held

    async def take(self, part: bytes) -> None:
        """The next bytes of the body."""
        if self._error is not None:
            return
        try:
            for begin in range(0, len(part), BLOCK):
                self._reader.feed(part[begin : begin + BLOCK])
                await self.file.settle()
        except (BadRequest, UploadsUnavailable) as error:
            self._error = error
            self.file.close()

    async def form(self) -> UploadedForm:
        """The whole form. Raises: BadRequest, UploadsUnavailable."""
        if self._error is not None:
            raise self._error
        form = self._reader.end(await self.file.digest())
        return UploadedForm(form, self.file)

    def close(self) -> None:
        self.file.close()


@dataclass(frozen=True, slots=True)
class UploadedForm:
    """A form that was read, and its file."""

    form: Form
    file: Spool

    @property
    def size(self) -> int:
        return self.file.size

    def sent(self, changed: Mapping[str, str]) -> FormBody:
        """What a member gets: other values of the fields in ``changed``."""
        before, behind = self.form.around(changed)
        return FormBody(before, self.file, behind)


@dataclass(frozen=True, slots=True)
class FormBody:
    """A form as a member gets it: ``before`` and ``behind`` the bytes of its file."""

    before: bytes
    file: Spool
    behind: bytes

    @property
    def size(self) -> int:
        return len(self.before) + self.file.size + len(self.behind)

    async def read(self, at: int) -> bytes:
        """The next bytes from there on. Raises: UploadsUnavailable."""
        at_file = at - len(self.before)
        if at_file < 0:
            return self.before[at:]
        if at_file < self.file.size:
            return await self.file.read(at_file)
        return self.behind[at_file - self.file.size :]
