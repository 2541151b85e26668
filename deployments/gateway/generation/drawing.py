"""Which prompt and which arm of an experiment a request gets, before anything else looks at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deployments.gateway.experiments.trials import Trials
from deployments.gateway.generation.asked import Shadowed
from deployments.gateway.guardrails.guards import Guards
from deployments.gateway.prompts.shelf import FIELD, PromptShelf
from deployments.gateway.request.exchange import Exchange
from serve_app.errors import BadRequest
from serve_app.experiments import Asking, Assigned
from serve_app.experiments.plan import HEADER as EXPERIMENT_HEADER
from serve_app.guardrails import Stage
from serve_app.model_choice.names import ModelNames, under
from serve_app.openai.requests import Endpoint, ParsedRequest, generation_from
from serve_app.prompts import Resolved, placed

PROMPT_HEADER = "x-prompt"
"""Which version of a prompt was used: `id@version`."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A request as it came. ``fields`` are its own, ``chat`` the same as a chat or text completion; ``body``:
    the bytes of the latter, ``None`` where it came in another dialect."""

    endpoint: Endpoint
    fields: Mapping[str, Any]
    chat: Mapping[str, Any]
    body: bytes | None

    def sent(self, prompt: Resolved | None) -> ParsedRequest:
        """The request as all that follows sees it: a prompt has become messages. Raises: BadRequest."""
        if prompt is None:
            return generation_from(self.endpoint, self.chat, self.body)
        own = self.chat.get("messages") or []
        changed = {**self.chat, "messages": placed(prompt, own) if isinstance(own, list) else own}
        changed.pop(FIELD, None)
        return generation_from(self.endpoint, changed)


@dataclass(frozen=True, slots=True)
class Drawn:
    """``trial``: the arm that answers; ``shadow``: the one that is asked besides."""

    raw: Raw
    sent: ParsedRequest
    prompt: Resolved | None
    trial: Assigned | None = None
    shadow: Assigned | None = None

    @property
    def asked(self) -> ParsedRequest:
        """The request to the arm's model. The name that the client used stays in the fields."""
        change = None if self.trial is None else self.trial.change
        return self.sent if change is None or change.model is None else under(self.sent, change.model)

    @property
    def marks(self) -> tuple[str, ...]:
        """What keeps its answer apart in the cache."""
        marks = () if self.prompt is None else (self.prompt.mark,)
        return marks if self.trial is None or self.trial.change is None else (*marks, self.trial.mark)


class Drawing:
    """``names``: the meaning of models' names; ``guards`` judge requests, so none is shadowed past them."""

    def __init__(
        self, prompts: PromptShelf, trials: Trials, names: ModelNames, guards: Guards | None
    ) -> None:
        self._prompts = prompts
        self._trials = trials
        self._names = names
        self._guards = guards

    async def prompt(
        self, exchange: Exchange, endpoint: Endpoint, fields: Mapping[str, Any]
    ) -> Resolved | None:
        """The prompt that a conversation names, with its variables. A text completion's prompt is its text.

        Raises: BadRequest.
        """
        if FIELD not in fields or endpoint is not Endpoint.CHAT:
            return None
        prompt = await self._prompts.resolved(fields[FIELD], exchange.identity.tenant)
        if prompt is not None:
            exchange.response_headers[PROMPT_HEADER] = prompt.label
        return prompt

    async def draw(self, exchange: Exchange, raw: Raw, prompt: Resolved | None, session: str | None) -> Drawn:
        """Raises: BadRequest."""
        sent = raw.sent(prompt)
        if self._trials.are_none:
            return Drawn(raw, sent, prompt)
        asking = _asking(exchange, sent, prompt, session)
        trial, shadow = self._trials.split(asking), self._trials.shadow(asking)
        plain = Drawn(raw, sent, prompt, None, shadow)
        return plain if trial is None else await self._tried(exchange, plain, trial)

    async def _tried(self, exchange: Exchange, plain: Drawn, trial: Assigned) -> Drawn:
        """The request as the arm changes it. A request whose variables do not fit the arm's version of the
        prompt is in no experiment."""
        change, prompt, sent = trial.change, plain.prompt, plain.sent
        if change is not None and change.prompt_version is not None:
            prompt = await self._other_version(exchange, plain.raw, change.prompt_version)
            if prompt is None:
                return plain
            sent = plain.raw.sent(prompt)
            exchange.response_headers[PROMPT_HEADER] = prompt.label
        if change is not None and change.changes_fields:
            sent = generation_from(plain.raw.endpoint, change.applied(sent.fields))
        exchange.response_headers[EXPERIMENT_HEADER] = exchange.facts.experiment = trial.label
        exchange.facts.place = trial.place
        return Drawn(plain.raw, sent, prompt, trial, plain.shadow)

    async def shadowed(self, exchange: Exchange, drawn: Drawn, request: ParsedRequest) -> Shadowed | None:
        """What the arm is asked besides. ``None``: nothing; or a guard looks at such requests, which judges
        no shadows; or the arm's prompt cannot be filled. ``request``: as its engine gets it."""
        change = None if drawn.shadow is None else drawn.shadow.change
        if drawn.shadow is None or change is None:
            return None
        own = request.model if change.model is None else self._names.own(change.model)
        if self._is_guarded(exchange, drawn.sent.model, request.model, own):
            return None
        base = request.fields
        if change.prompt_version is not None:
            prompt = await self._other_version(exchange, drawn.raw, change.prompt_version)
            if prompt is None:
                return None
            base = drawn.raw.sent(prompt).fields

        def make() -> ParsedRequest:
            return under(generation_from(request.endpoint, change.applied(base)), own)

        return Shadowed(drawn.shadow, make, own, len(request.body))

    async def _other_version(self, exchange: Exchange, raw: Raw, version: str) -> Resolved | None:
        """The same prompt in another version; ``None``: it cannot be filled with the same variables."""
        try:
            named = {**raw.fields[FIELD], "version": version}
            return await self._prompts.resolved(named, exchange.identity.tenant)
        except BadRequest:
            return None

    def _is_guarded(self, exchange: Exchange, *models: str) -> bool:
        if self._guards is None:
            return False
        tenant = exchange.identity.tenant
        held = self._guards.held(Stage.BEFORE, models=models, tenant=tenant, path=exchange.path)
        return held is not None


def _asking(exchange: Exchange, sent: ParsedRequest, prompt: Resolved | None, session: str | None) -> Asking:
    """What an experiment knows a request by. Without a session its ``user`` keeps an arm, then who sends
    it."""
    identity, user = exchange.identity, sent.fields.get("user")
    units = (
        ("session", session),
        ("user", user if isinstance(user, str) else None),
        ("sender", identity.user),
        ("key", identity.key_id),
        ("request", exchange.request_id),
    )
    unit = next(f"{kind} {name}" for kind, name in units if name)
    prompt_id = None if prompt is None else prompt.id
    wish = exchange.headers.get(EXPERIMENT_HEADER)
    return Asking(identity.tenant, sent.model, prompt_id, unit, exchange.request_id, wish)
