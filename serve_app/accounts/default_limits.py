"""The limits of the settings, as quotas have them."""

from __future__ import annotations

from serve_app.quotas.cost import Price
from serve_app.quotas.limits import KINDS, Limit, LimitTable
from serve_app.settings import AccountSettings, Settings


def table_of(settings: AccountSettings) -> LimitTable:
    """Without limits of any scope's own."""
    defaults = {
        kind: Limit(f"{kind}:", **getattr(settings.limits, kind).model_dump(exclude_none=True))
        for kind in KINDS
    }
    return LimitTable(defaults, settings.time_zone)


def prices_of(settings: Settings) -> dict[str, Price]:
    """By a model's id."""
    return {
        model.id: Price(model.cost_per_million_tokens.input, model.cost_per_million_tokens.output)
        for model in settings.models
        if model.cost_per_million_tokens is not None
    }
