"""Chooses the model that answers a request: the one that the request names, or the one that a rule picks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from serve_app.fleet import FleetTable, Member
from serve_app.model_choice.base import Candidate, ChoiceRequest, ModelRule, Price
from serve_app.model_choice.names import ModelNames, Served, under
from serve_app.model_choice.registry import load_rule
from serve_app.openai.requests import ParsedRequest
from serve_app.request.headers import invalid_header
from serve_app.routing.prompt import estimated_tokens
from serve_app.settings import ModelSettings, Settings
from serve_app.settings.auto_model import AutoModelSettings

TIER_HEADER = "x-model-tier"
SECRET_HEADERS = frozenset({"authorization", "cookie"})


@dataclass(frozen=True, slots=True)
class Option:
    """One model of an auto model, from the settings. ``listed`` is its name there."""

    listed: str
    served: Served
    price: Price
    max_model_len: int | None


@dataclass(frozen=True, slots=True)
class Choice:
    """One auto model: its options, and the rule that decides among them."""

    settings: AutoModelSettings
    rule: ModelRule
    options: tuple[Option, ...]

    def options_for(self, headers: Mapping[str, str]) -> tuple[Option, ...]:
        """The options of the tier that the request asks for.

        Raises:
            BadRequest: the tier does not exist.
        """
        tier = headers.get(TIER_HEADER)
        if tier is None:
            return self.options
        listed = self.settings.tiers.get(tier.strip())
        if listed is None:
            known = ", ".join(self.settings.tiers) or f"none: {self.settings.id!r} has no tiers"
            raise invalid_header(TIER_HEADER, tier, f"one of: {known}")
        return tuple(option for option in self.options if option.listed in listed)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The request with the real name of the model that answers it; fields and body are unchanged.

    ``to_start``: a model scaled to zero that would have been chosen if it had a replica. Another model
    answers; the caller starts this one, because otherwise no request ever would.
    """

    request: ParsedRequest
    to_start: str | None = None


class ModelChooser:
    """Replaces the model name of every request by that of the model that answers.

    The constructor imports the rules that users wrote. Raises: SettingsError: a rule cannot be imported.
    """

    def __init__(self, settings: Settings, fleet: FleetTable) -> None:
        self.names = ModelNames.of(settings)
        self._fleet = fleet
        models = {model.id: model for model in settings.models}
        self._choices = {auto.id: _choice(auto, self.names, models) for auto in settings.auto_models}

    def choose(self, parsed: ParsedRequest, headers: Mapping[str, str], now: float) -> Chosen:
        """Choose the model for a request.

        Raises:
            UnknownModel: no model has the requested name.
            EmbedderOnly: only the embedder has this name.
            BadRequest: the requested tier does not exist.
        """
        choice = self._choices.get(parsed.model)
        if choice is None:
            return Chosen(self.names.under_own_name(parsed))
        options = {option.served.name: option for option in choice.options_for(headers)}
        candidates = [self._candidate(option, now) for option in options.values()]
        request = _choice_request(choice, parsed, headers)
        name = _decide(choice, request, candidates)
        startable = {candidate.name for candidate in candidates if candidate.can_start}
        if not startable or name in startable:  # in the latter case the request starts it
            return Chosen(under(parsed, name))
        as_if = [replace(each, can_serve=each.can_serve or each.can_start) for each in candidates]
        wanted = _decide(choice, request, as_if)
        return Chosen(under(parsed, name), options[wanted].served.model if wanted in startable else None)

    def _candidate(self, option: Option, now: float) -> Candidate:
        model = option.served.model
        reported = reported_context(self._fleet.members(model))
        serving = self._fleet.candidates(model, now)
        return Candidate(
            name=option.served.name,
            price=option.price,
            context=option.max_model_len if reported is None else reported,
            can_serve=bool(serving),
            has_room=any(member.has_room for member in serving),
            can_start=self._fleet.is_at_zero(model, now),
        )


def _choice_request(choice: Choice, parsed: ParsedRequest, headers: Mapping[str, str]) -> ChoiceRequest:
    generation = parsed.generation
    asked = generation.max_completion_tokens or generation.max_tokens
    return ChoiceRequest(
        prompt_tokens=estimated_tokens(parsed),
        answer_tokens=choice.settings.answer_tokens if asked is None else asked,
        headers={name: value for name, value in headers.items() if name not in SECRET_HEADERS},
        parsed=parsed,
    )


def _decide(choice: Choice, request: ChoiceRequest, candidates: Sequence[Candidate]) -> str:
    name = choice.rule(request, candidates)
    if all(name != candidate.name for candidate in candidates):
        # A user's rule is wrong: the log names it, and the client gets a gateway error.
        raise ValueError(f"rule {choice.settings.rule!r} returned {name!r}, which is no candidate")
    return name


def reported_context(members: Iterable[Member]) -> int | None:
    """The shortest context length, in tokens, among the ``members`` that report one."""
    contexts = (member.report.token_limits.context for member in members)
    return min((context for context in contexts if context is not None), default=None)


def _choice(auto: AutoModelSettings, names: ModelNames, models: Mapping[str, ModelSettings]) -> Choice:
    served = {listed: names.served[listed] for listed in auto.models}
    options = tuple(_option(listed, each, models[each.model]) for listed, each in served.items())
    return Choice(auto, load_rule(auto.rule), options)


def _option(listed: str, served: Served, model: ModelSettings) -> Option:
    price, engine = model.cost_per_million_tokens, model.engine
    return Option(
        listed=listed,
        served=served,
        price=Price() if price is None else Price(price.input, price.output),
        max_model_len=None if engine is None else engine.max_model_len,
    )
