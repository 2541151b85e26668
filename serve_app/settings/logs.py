"""Settings of the gateways' log lines about requests."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from serve_app.settings.base import Frozen


class LogSettings(Frozen):
    """One line for each finished request, without any text of prompts or answers."""

    requests: Literal["off", "text", "json"] = Field(
        default="text",
        description="`json`: the whole record of a request, with each of its steps. Probes of `/health`, "
        "`/ping` and `/ready` have no line.",
    )
    refused_per_s: float = Field(
        default=10.0,
        gt=0,
        description="Lines per second and gateway, on average, about requests that were refused (status 400 "
        "to 499; those without a known key have a bound of their own), and, with the same bound again, about "
        "those that need no key or that their clients gave up before an answer. The next line says how "
        "many were left out. So no one can fill the disk with requests that cost nothing; failures (500 "
        "and above) always have a line.",
    )
