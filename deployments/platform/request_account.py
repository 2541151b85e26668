"""What the application and its caller exchange about one request. No Ray here."""

from __future__ import annotations

import os
import re
from typing import Final

VALID_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

ACCOUNT: Final = "promptly.account"
"""The scope's key of the :class:`RequestAccount`. If the scope has one, the application adds the request's id
to the response itself, because Serve's wrapper, which does so otherwise, is not there."""


class RequestAccount:
    """The caller gives the id; the application leaves the status."""

    __slots__ = ("request_id", "status")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.status = 0
        """The response's HTTP status; 0 before there is one."""


def request_id(given: str | None) -> str:
    """The client's id if it is one that logs and headers can carry; else a new one."""
    return given if given is not None and VALID_ID.fullmatch(given) else os.urandom(16).hex()
