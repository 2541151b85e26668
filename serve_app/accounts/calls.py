"""Calls from a gateway to the owner of the accounts."""

from __future__ import annotations

from serve_app.accounts.exchange import Changes, Report
from serve_app.accounts.keys import Kept, KeyPage, KeyQuery, ManagedKey, Outcome
from serve_app.accounts.refused import Refused, RefusedUser
from serve_app.audit import AuditEvent, AuditPage, Head
from serve_app.quotas.limits import Limit
from serve_app.quotas.messages import LeaseCall, LeaseReply, LimitPage
from serve_app.usage import UsagePage, UsageQuery
from serve_app.wire.calls import Interface, Method

ACCOUNTS: Interface = {
    "exchange": Method(tuple[Report], Changes),
    "lease": Method(tuple[LeaseCall], LeaseReply),
    "set_limit": Method(tuple[Limit], int | None),
    "remove_limit": Method(tuple[str], int | bool | None),
    "limits": Method(tuple[str, str, int], LimitPage),
    "make_key": Method(tuple[ManagedKey], Kept),
    "change_key": Method(tuple[ManagedKey], Kept),
    "key": Method(tuple[str], ManagedKey | None),
    "keys": Method(tuple[KeyQuery], KeyPage),
    "refuse_user": Method(tuple[RefusedUser], Outcome),
    "let_in_user": Method(tuple[str, str, bool], Outcome),
    "refused_users": Method(tuple[()], Refused),
    "usage": Method(tuple[UsageQuery], UsagePage),
    "audit": Method(tuple[AuditEvent], Head),
    "audit_lines": Method(tuple[int], AuditPage),
}
"""All may be repeated: a change names the version that it makes, and an event that was written a moment ago
is not written again. An owner of an older version says ``None``, or whether there was a limit, in place of
a change's number."""
