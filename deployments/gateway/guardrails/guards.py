"""A gateway's guards: which are asked, within which time, and what their failure means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deployments.gateway.guardrails.judges import Failed, Judge, judge_of
from serve_app.guardrails.contract import Check, Stage, Text
from serve_app.guardrails.registry import Guardrails, Subject, that_refuses_unseen
from serve_app.guardrails.texts import Texts, with_texts
from serve_app.guardrails.verdicts import BadVerdict, texts_after, unavailable, unseen
from serve_app.model_choice.names import ModelNames
from serve_app.settings import Settings
from serve_app.settings.guardrails import GuardrailSettings

GuardHeaders = Mapping[str, Mapping[str, str]]
"""The headers of the requests to each HTTP guard, by its name; they hold secrets."""

logger = logging.getLogger("ray.serve")


class Guard:
    """One guard of the settings. A guard that fails costs one line in the log until it works again."""

    def __init__(self, settings: GuardrailSettings, judge: Judge) -> None:
        self.settings = settings
        self.judge = judge
        self._calls = 0
        self._is_failing = False

    async def check(self, check: Check) -> tuple[str, ...]:
        """The texts that go on.

        Raises:
            GuardRefused: it refuses.
            GuardUnavailable: it gave no verdict, and its settings say to refuse then.
        """
        try:
            verdict = await self._judged(check)
        except (Failed, BadVerdict) as error:
            self._tell_failure(str(error))
            if self.settings.refuses_failure:
                raise unavailable(self.settings.name) from None
            return tuple(each.text for each in check.texts)
        if self._is_failing:
            self._is_failing = False
            logger.info("guardrail %s judges again", self.settings.name)
        return texts_after(verdict, check)

    async def _judged(self, check: Check) -> Any:
        settings = self.settings
        if self._calls >= settings.max_calls:
            raise Failed(f"{settings.max_calls} judgements are under way (guardrails.max_calls)")
        if any(len(each.text) > settings.max_chars for each in check.texts):
            raise Failed(f"a text has more than {settings.max_chars} characters (guardrails.max_chars)")
        self._calls += 1
        try:
            async with asyncio.timeout(settings.timeout_s):
                return await self.judge.judge(check)
        except TimeoutError:
            raise Failed(f"no verdict within {settings.timeout_s:g} s (guardrails.timeout_s)") from None
        finally:
            self._calls -= 1

    def _tell_failure(self, reason: str) -> None:
        if not self._is_failing:
            logger.warning("guardrail %s fails: %s", self.settings.name, reason)
        self._is_failing = True


@dataclass(frozen=True, slots=True)
class Held:
    """The guards that hold for one request in one stage, and whose request it is."""

    guards: tuple[Guard, ...]
    check: Check
    """What guards get, but for the guard's name and the texts."""

    async def judge(self, guard: Guard, texts: Sequence[Text]) -> tuple[Text, ...]:
        """Raises: GuardRefused, GuardUnavailable."""
        asked = replace(self.check, guard=guard.settings.name, texts=tuple(texts))
        judged = await guard.check(asked)
        return tuple(replace(each, text=text) for each, text in zip(texts, judged, strict=True))

    def refuse_unseen(self, what: str | None) -> None:
        """``what`` no guard can see; ``None``: all is seen. Raises: GuardRefused."""
        if what is None:
            return
        strict = that_refuses_unseen([guard.settings for guard in self.guards])
        if strict is not None:
            raise unseen(strict.name, what)

    async def judged(self, value: Any) -> Any:
        """JSON after all guards; the same object if they left it. Raises: GuardRefused, GuardUnavailable."""
        keys = self.check.stage is Stage.BEFORE
        seen = Texts(value, keys=keys)
        self.refuse_unseen(seen.unseen)
        texts: tuple[Text, ...] = tuple(seen.found)
        if not texts:
            return value
        for guard in self.guards:
            texts = await self.judge(guard, texts)
        if texts == tuple(seen.found):
            return value
        return with_texts(value, [each.text for each in texts], keys=keys)


class Guards:
    """All guards of a gateway."""

    def __init__(
        self,
        settings: Sequence[GuardrailSettings],
        names: ModelNames,
        headers: GuardHeaders,
    ) -> None:
        """Raises: SettingsError: a function or a library is missing."""
        self._policy = Guardrails(settings)
        self._names = names
        self._guards = {
            each.name: Guard(each, judge_of(each, headers.get(each.name, {}))) for each in settings
        }

    def held(self, stage: Stage, *, models: Sequence[str], tenant: str, path: str) -> Held | None:
        """``models``: the names that the request has for its model. ``None``: no guard holds."""
        served = self._names.served
        base = (served[name].model for name in models if name in served)
        own = (served[name].name for name in models if name in served)
        subject = Subject(frozenset((*models, *own, *base)), tenant, path)
        guards = self._policy.held(subject, stage)
        if not guards:
            return None
        check = Check("", stage, models[-1], tenant, path, ())
        return Held(tuple(self._guards[each.name] for each in guards), check)

    def held_for_any(self, model: str | None, tenant: str, path: str) -> Held | None:
        """The guards of a request whose model is chosen later (an auto model's name, or ``None``): those of
        all models hold then."""
        served = self._names.served
        names = (model,) if model is not None and model in served else tuple(served)
        return self.held(Stage.BEFORE, models=names, tenant=tenant, path=path)

    def refuse_unseen_answer(self, model: str, tenant: str, path: str) -> None:
        """Refuses an answer in a form that no guard can read. Raises: GuardRefused."""
        held = self.held(Stage.AFTER, models=(model,), tenant=tenant, path=path)
        if held is not None:
            held.refuse_unseen(f"the answers of {path}")

    def refuse_unseen_session(self, model: str, tenant: str, path: str) -> None:
        """Refuses a session whose data no guard can see. Raises: GuardRefused."""
        for stage in Stage:
            held = self.held(stage, models=(model,), tenant=tenant, path=path)
            if held is not None:
                held.refuse_unseen("live audio")

    def refuse_unseen_recording(self, model: str, tenant: str, path: str, *, has_prompt: bool) -> None:
        """A recording is seen by the guards that look at its transcript, and by no others; the text that
        may come with it by none. Raises: GuardRefused."""
        before = self.held(Stage.BEFORE, models=(model,), tenant=tenant, path=path)
        if before is None:
            return
        if has_prompt:
            before.refuse_unseen("the `prompt` of a recording")
        only_before = tuple(each for each in before.guards if each.settings.when == "before")
        replace(before, guards=only_before).refuse_unseen("a recording")

    def close(self) -> None:
        for guard in self._guards.values():
            guard.judge.close()


def guards_of(settings: Settings, names: ModelNames, headers: GuardHeaders) -> Guards | None:
    """``None`` without guardrails: then a request meets no more of them than this."""
    return Guards(settings.guardrails, names, headers) if settings.guardrails else None
