"""What goes wrong, and which requests it hits."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any


@dataclass(frozen=True)
class Faults:
    """What goes wrong. The default is nothing."""

    refuse: bool = False
    """Nothing listens and open connections are reset, except for requests to ``/sim/``, which can undo it."""
    hang_before: bool = False
    """No byte is ever sent, not even headers."""
    hang_after: int | None = None
    """No more tokens after this many; the slot stays taken until the client leaves."""
    die_before: bool = False
    """The connection is reset instead of an answer."""
    die_after: int | None = None
    """The connection is reset after this many tokens."""
    error_after: int | None = None
    """An error event is sent after this many tokens."""
    garbage: str | None = None
    """``http``: bytes that are not HTTP. ``json``: an answer that is not JSON."""
    first_byte_ms: float = 0.0
    """Added delay before the answer starts; no slot is taken meanwhile."""
    status: int | None = None
    """The answer is an error with this HTTP status."""
    share: float = 1.0
    """Probability that a request is hit."""
    times: int | None = None
    """The fault ends after this many requests."""
    for_s: float | None = None
    """The fault ends after this many seconds."""


NO_FAULTS = Faults()


def _flag(value: Any) -> bool:
    if str(value).lower() not in ("true", "1", "false", "0"):
        raise ValueError(value)
    return str(value).lower() in ("true", "1")


def _garbage(value: Any) -> str:
    if value not in ("http", "json"):
        raise ValueError(value)
    return str(value)


FAULT_TYPES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("refuse", "hang_before", "die_before"), _flag),
    **dict.fromkeys(("hang_after", "die_after", "error_after", "times"), int),
    **dict.fromkeys(("first_byte_ms", "share", "for_s"), float),
    "garbage": _garbage,
    "status": lambda value: HTTPStatus(int(value)).value,
}


def faults_of(values: Mapping[str, Any]) -> Faults:
    """The faults with these names and values; ``None`` leaves a fault out.

    Raises:
        ValueError: an unknown name or a value of the wrong type; the message names it.
    """
    typed: dict[str, Any] = {}
    for name, value in values.items():
        if name not in FAULT_TYPES:
            raise ValueError(f"unknown fault {name!r}; known are {', '.join(FAULT_TYPES)}")
        if value is None:
            continue
        try:
            typed[name] = FAULT_TYPES[name](value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"fault {name!r} cannot be {value!r}") from error
    return Faults(**typed)


def parse_faults(text: str) -> Faults:
    """``die_after=5,times=1``; a name alone is true.

    Raises:
        ValueError: as for ``faults_of``.
    """
    pairs = (item.strip().partition("=") for item in text.split(",") if item.strip())
    return faults_of({name: value if equals else True for name, equals, value in pairs})


class FaultSource:
    """Decides which fault hits a request: the one in the request's header, else the engine's own."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self._random = random.Random(seed)
        self.set(faults)

    def set(self, faults: Faults) -> None:
        """Replace the engine's own faults."""
        self.current = faults
        self._hits_left = faults.times

    def draw(self, header: str | None) -> Faults:
        """The faults of the next request, by chance (``share``) and count (``times``).

        Raises:
            ValueError: the header is not a list of faults.
        """
        faults = self.current if header is None else parse_faults(header)
        if faults == NO_FAULTS or self._random.random() >= faults.share:
            return NO_FAULTS
        if header is None and self._hits_left is not None:
            if self._hits_left == 0:
                return NO_FAULTS
            self._hits_left -= 1
        return faults
