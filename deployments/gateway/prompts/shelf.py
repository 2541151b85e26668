"""The prompts that this gateway knows, kept as the files in their folder are."""

from __future__ import annotations

import asyncio
import logging

from deployments.platform.prompt_folder import PromptFolder, Signature
from serve_app.errors import BadRequest
from serve_app.monitoring import metrics as names
from serve_app.monitoring.metrics import Meter, NoMeter
from serve_app.prompts import EMPTY, Reference, Resolved
from serve_app.prompts.gone import Gone
from serve_app.prompts.library import library_of
from serve_app.settings.prompts import PromptSettings

FIELD = "prompt"
logger = logging.getLogger("ray.serve")


class PromptShelf:
    """Made inside a running event loop; ``stop`` ends it. Without ``settings`` there are no prompts. Files
    are read in a thread: a file system that does not answer stops this loop, not the gateway's."""

    def __init__(self, settings: PromptSettings | None, meter: Meter | None) -> None:
        self._settings = settings
        self._meter = NoMeter() if meter is None else meter
        self._library = EMPTY
        self._seen: Signature | None = None
        self._gone = Gone()
        self._said: tuple[str, ...] = ()
        self._known = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        if settings is not None:
            looking = self._look_forever(PromptFolder(settings), settings.check_period_s)
            self._looking = asyncio.get_running_loop().create_task(looking)

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def resolved(self, given: object, tenant: str) -> Resolved | None:
        """The prompt that a request's field names; ``None``: it names none. A text is no such name: engines
        ignore it. The first request waits until the folder was read once.

        Raises: BadRequest: the field is wrong, or there are no prompts here.
        """
        if given is None or isinstance(given, str):
            return None
        if self._settings is None:
            raise BadRequest(
                "`prompt`: no prompts are stored here (setting `prompts`).",
                param=FIELD,
                code="unsupported_parameter",
            )
        asked = Reference.of(given)
        if not self._known.is_set():
            await self._known.wait()
        return self._library.resolved(asked, tenant, self._settings.max_chars)

    async def _look_forever(self, folder: PromptFolder, period_s: float) -> None:
        while True:
            try:
                await self._look(folder)
            except OSError as error:
                self._seen = None  # it is read at every look until that succeeds
                self._tell((f"{folder.path}: {error.strerror}",))
            except Exception:
                logger.exception("prompts could not be read; those known so far stay")
            self._known.set()
            await asyncio.sleep(period_s)

    async def _look(self, folder: PromptFolder) -> None:
        seen = await asyncio.to_thread(folder.signature)
        if not self._gone.is_sure(seen) or seen == self._seen:
            return
        files = await asyncio.to_thread(folder.read, seen)
        library = await asyncio.to_thread(library_of, files, self._library)
        self._seen = seen  # taken before: a write in between is noticed at the next look
        logger.info("prompts were read: %d, with problems: %d", len(library.prompts), len(library.problems))
        self._library = library
        self._tell(library.problems)

    def _tell(self, problems: tuple[str, ...]) -> None:
        """Log each problem once, not at every look."""
        self._meter.set(names.PROMPT_PROBLEMS, len(problems), {})
        for problem in problems:
            if problem not in self._said:
                logger.error("prompts: what was known of it stays: %s", problem)
        self._said = problems
