"""``/admin/plan``: what ``promptly plan`` says of the running settings. It needs an admin key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from deployments.gateway.request.exchange import Exchange
from serve_app.errors import BadRequest, NotFound, SettingsError
from serve_app.planning.question import Question, parse_question
from serve_app.settings import Settings

Planner = Callable[[Settings, Question], dict[str, Any]]
"""Reads models' files and computes, for up to seconds. Raises SettingsError: the device is unknown."""


class AdminPlan:
    """One plan at a time, in a thread: streams go on meanwhile. ``planner`` is ``None`` where nothing can
    read models' files."""

    def __init__(self, settings: Settings, planner: Planner | None) -> None:
        self._settings = settings
        self._planner = planner
        self._one = asyncio.Lock()

    async def __call__(self, exchange: Exchange) -> None:
        if self._planner is None:
            raise NotFound("This gateway has no planner.", code="no_plan")
        pairs = parse_qs(exchange.query.decode("latin-1"), keep_blank_values=True)
        question = parse_question({name: values[-1] for name, values in pairs.items()})
        async with self._one:
            try:
                plan = await asyncio.to_thread(self._planner, self._settings, question)
            except SettingsError as error:
                raise BadRequest(str(error), param="device") from error
        await exchange.respond_json(plan)
