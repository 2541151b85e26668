"""How long a request may take."""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.request.headers import TIMEOUT


def request_timeout_s(headers: Mapping[str, str], default_s: float) -> float:
    """The request's own deadline in seconds, else the default.

    Raises:
        BadRequest: the header is not a number of milliseconds from 1 to one day.
    """
    return TIMEOUT.read(headers, default_s)
