"""The gateway's side of the owner of the accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deployments.wire.owner_client import OwnerClient, is_full
from serve_app.accounts.calls import ACCOUNTS
from serve_app.accounts.keys import AccountsError
from serve_app.errors import AccountsUnavailable

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle


class AccountsClient(OwnerClient):
    """Its calls raise AccountsUnavailable."""

    def __init__(self, handle: DeploymentHandle[Any], patience_s: float) -> None:
        super().__init__(handle, ACCOUNTS, patience_s, name="accounts", failure=AccountsError)

    def _unavailable(self, cause: BaseException, *, failed: bool) -> AccountsUnavailable:
        return AccountsUnavailable(_said(cause) if failed else "their owner is away", is_final=failed)


def _said(cause: BaseException) -> str:
    text = str(cause).lower()
    if "locked" in text or "busy" in text:
        return "the file is locked"
    return "the disk is full" if is_full(cause) else "their owner failed"
