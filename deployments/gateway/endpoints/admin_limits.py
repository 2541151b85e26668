"""``/admin/limits``: what keys, users, tenants and models may use."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import msgspec

from deployments.gateway.accounts.accounts import GatewayAccounts
from deployments.gateway.request.bodies import ADMINISTRATORS, Bodies
from deployments.gateway.request.exchange import Exchange
from serve_app.accounts.requests import require_possible
from serve_app.errors import BadRequest, NotFound
from serve_app.json_errors import no_json
from serve_app.model_choice.names import ModelNames
from serve_app.quotas.limits import MONEY, NANO, Bound, Limit, model_in, problem_of
from serve_app.quotas.messages import LimitPage, ShownLimit

MOST = 1000
_decoder = msgspec.json.Decoder(Limit)


class AdminLimits:
    """``accounts`` is ``None`` where there are no limits."""

    def __init__(self, bodies: Bodies, accounts: GatewayAccounts | None, names: ModelNames) -> None:
        self._bodies = bodies
        self._names = names
        self._accounts = accounts

    async def __call__(self, exchange: Exchange) -> None:
        """``GET``: a page of limits, with what is used of them. ``PUT``: a scope's limits, all of them.
        ``DELETE``: those of a scope."""
        if self._accounts is None:
            raise NotFound("No limits are kept here (accounts).", code="no_accounts")
        client = self._accounts.client
        if exchange.method == "PUT":
            limit = limit_of(await self._bodies.read(exchange, ADMINISTRATORS))
            require_own_name(limit.scope, self._names)
            exchange.audit_target = said_of(limit)
            # It is in force here at once; the others learn it a moment later.
            self._accounts.sync.has_set(limit, await client.call("set_limit", limit))
            await exchange.respond_json(limit)
            return
        query = {name: values[-1] for name, values in parse_qs(exchange.query.decode("latin-1")).items()}
        scope = query.get("scope", "")
        if exchange.method == "DELETE":
            exchange.audit_target = f"scope={scope[:300]}"
            version: int | bool | None = await client.call("remove_limit", scope)
            if version is None or version is False:
                raise NotFound(f"There are no limits of {scope[:100]!r}.", param="scope", code="no_limits")
            self._accounts.sync.has_removed(scope, None if version is True else version)
            await exchange.respond_json({"scope": scope, "removed": True})
            return
        page: LimitPage = await client.call("limits", scope, query.get("after", ""), MOST)
        following = page.limits[-1].limit.scope if page.has_more else None
        await exchange.respond_json({"limits": [shown(each) for each in page.limits], "next": following})


def require_own_name(scope: str, names: ModelNames) -> None:
    """A limit of a model holds under the name that the model has itself, whatever clients call it.

    Raises:
        BadRequest: there is no such model, or it is another name of one.
    """
    model = model_in(scope)
    if model is None or model in names.others:
        return
    if model in names.served and names.own(model) == model:
        return
    if model in names.served:
        why = f"{model!r} is another name of {names.own(model)!r}: limit that one."
    elif model in names.autos:
        why = f"{model!r} chooses among models: limit those."
    else:
        why = f"there is no model {model!r}; known: {', '.join(names)}."
    raise BadRequest(f"`scope`: {why}", param="scope", code="invalid_value")


def shown(each: ShownLimit) -> dict[str, Any]:
    """What is used of a scope's limits: money as the limit says it, in the settings' currency."""
    uses = {
        bound: {
            name: amount / NANO if Bound(bound) in MONEY else amount
            for name, amount in msgspec.structs.asdict(use).items()
        }
        for bound, use in each.uses.items()
    }
    return {"limit": each.limit, "uses": uses}


def said_of(limit: Limit) -> str:
    """A limit in the audit log: its scope and its bounds."""
    given = msgspec.structs.asdict(limit)
    return " ".join(f"{name}={value}" for name, value in given.items() if value is not None)


def limit_of(body: bytes) -> Limit:
    """Raises: BadRequest: it names the wrong field."""
    try:
        limit = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"The limits are wrong: {no_json(error, body)}.", code="invalid_value") from error
    problem = problem_of(limit)
    if problem is not None:
        field, why = problem
        raise BadRequest(f"`{field}`: {why}.", param=field, code="invalid_value")
    require_possible(limit.scope)
    return limit
