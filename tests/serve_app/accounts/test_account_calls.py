"""What gateways and the owner of the accounts say to one another survives the wire."""

from __future__ import annotations

from typing import Any

import pytest
from support.accounts import managed

from serve_app.accounts.calls import ACCOUNTS
from serve_app.accounts.exchange import Changes, Report
from serve_app.accounts.keys import Kept, KeyPage, KeyQuery, Outcome, State, revoked, rotated
from serve_app.api.roles import Role
from serve_app.quotas.limits import Limit
from serve_app.wire.calls import Wire, WireError

_, KEY = managed(
    "acme",
    role=Role.TENANT_ADMIN,
    user="ann@acme.example",
    models=("m",),
    endpoints=("/v1/*",),
    networks=("10.0.0.0/8",),
    expires_at=2000.5,
)
CHANGED = rotated(KEY, "salt", "0" * 64, by="0a1b2c3d4e5f", now=1500.0, overlap_s=60)
CALLS: list[tuple[str, tuple[Any, ...], Any]] = [
    (
        "exchange",
        (Report(gateway="g", seq=3, store="s", keys_version=7),),
        Changes(
            store="s",
            keys_version=9,
            keys=(KEY.record, CHANGED.record),
            revoked=("x",),
            fresh=True,
            more=True,
        ),
    ),
    ("make_key", (KEY,), Kept(Outcome.FULL)),
    ("change_key", (CHANGED,), Kept(Outcome.CONFLICT, revoked(KEY, by="", now=1600.0))),
    ("key", ("0a1b2c3d4e5f",), KEY),
    ("key", ("0a1b2c3d4e5f",), None),
    ("set_limit", (Limit("tenant:acme", requests_per_minute=3),), 7),
    ("set_limit", (Limit("tenant:acme"),), None),
    ("remove_limit", ("tenant:acme",), 8),
    ("remove_limit", ("tenant:acme",), None),
    ("remove_limit", ("tenant:acme",), False),
    ("keys", (KeyQuery(tenant="acme", state=State.ANY, limit=3),), KeyPage((KEY, CHANGED), has_more=True)),
]


@pytest.mark.parametrize(("method", "arguments", "result"), CALLS)
def test_a_call_and_its_answer_come_out_as_they_went_in(
    method: str, arguments: tuple[Any, ...], result: Any
) -> None:
    wire = Wire(ACCOUNTS)
    assert wire.decode_arguments(method, wire.encode_arguments(method, arguments)) == arguments
    assert wire.decode_result(method, wire.encode_result(method, result)) == result


def test_what_is_no_key_is_refused() -> None:
    wire = Wire(ACCOUNTS)
    with pytest.raises(WireError):
        wire.decode_arguments("make_key", wire.encode_arguments("key", ("no key",)))
