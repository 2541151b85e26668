"""Finds settings that are valid but probably a mistake. A start prints them as warnings and goes on."""

from __future__ import annotations

from collections.abc import Iterator

from serve_app.settings.keys import KeySettings
from serve_app.settings.paths import doubtful_paths
from serve_app.settings.root import Settings

OF_A_TENANT = (
    ("limits", "max_concurrent_requests_per_tenant", "max_concurrent_requests"),
    ("media", "max_fetches_per_tenant", "max_fetches"),
    ("media", "max_uploads_per_tenant", "max_uploads"),
    ("realtime", "max_sessions_per_tenant", "max_sessions"),
    ("responses", "max_entries_per_tenant", "max_entries"),
    ("responses", "max_bytes_per_tenant", "max_bytes"),
    ("responses", "max_background_per_tenant", "max_background"),
    ("cache", "max_entries_per_tenant", "max_entries"),
)
"""Sections with the bound of one tenant and that of all."""

BODIES = ("max_body_bytes", "max_conversation_bytes")


def doubts(settings: Settings) -> Iterator[str]:
    """One line for each: the setting, its value, and the likely mistake."""
    for number, model in enumerate(settings.models):
        where = f"models[{number}]"
        if model.engine is not None:
            yield from doubtful_paths(f"{where}.paths", model.paths, is_vendor=False)
        for index, upstream in enumerate(model.upstreams):
            setting = f"{where}.upstreams[{index}].paths"
            yield from doubtful_paths(setting, upstream.paths, is_vendor=upstream.kind == "openai")
    yield from _bounds_of_tenants(settings)
    yield from _free_beside_money(settings)


def _free_beside_money(settings: Settings) -> Iterator[str]:
    """A budget of money that some models never use up, as they cost nothing."""
    accounts = settings.accounts
    if accounts is None:
        return
    free = ", ".join(repr(each.id) for each in settings.models if each.cost_per_million_tokens is None)
    for kind in type(accounts.limits).model_fields:
        for bound in ("money_per_day", "money_per_month"):
            amount = getattr(getattr(accounts.limits, kind), bound)
            if free and amount is not None:
                yield (
                    f"accounts.limits.{kind}.{bound} = {amount:g}: requests to {free} cost nothing, as "
                    "models[].cost_per_million_tokens says no price"
                )


def _bounds_of_tenants(settings: Settings) -> Iterator[str]:
    """Bounds of one tenant that bound nothing, or that refuse what another bound allows. A default is
    doubtful only beside a bound of all that was set, and where there are keys of several tenants."""
    for name, own, total in OF_A_TENANT:
        section = getattr(settings, name)
        if section is None:
            continue
        asked = own in section.model_fields_set or (
            total in section.model_fields_set and isinstance(settings.auth, KeySettings)
        )
        one, every = getattr(section, own), getattr(section, total)
        if asked and one is not None and one > every:
            yield f"{name}.{own} = {one}: more than {name}.{total} = {every}, so one tenant can take all"
    held = settings.limits.max_held_bytes_per_tenant
    for body in BODIES:
        size = getattr(settings.limits, body)
        if held < size:
            yield (
                f"limits.max_held_bytes_per_tenant = {held}: less than limits.{body} = {size}, "
                "so the largest bodies are always refused"
            )
