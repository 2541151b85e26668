"""The gateway's side of the owner of the feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deployments.wire.owner_client import OwnerClient, is_full
from serve_app.errors import FeedbackUnavailable
from serve_app.feedback.calls import FEEDBACK
from serve_app.feedback.values import FeedbackError

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle


class FeedbackClient(OwnerClient):
    """Its calls raise FeedbackUnavailable."""

    def __init__(self, handle: DeploymentHandle[Any], patience_s: float) -> None:
        super().__init__(handle, FEEDBACK, patience_s, name="feedback", failure=FeedbackError)

    def _unavailable(self, cause: BaseException, *, failed: bool) -> FeedbackUnavailable:
        if not failed:
            return FeedbackUnavailable("its owner is away")
        return FeedbackUnavailable(
            "the disk is full" if is_full(cause) else "its owner failed", is_final=True
        )
