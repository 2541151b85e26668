"""The store of feedback that the settings name."""

from __future__ import annotations

import os
from pathlib import Path

from deployments.feedback.store.base import FeedbackStore
from deployments.feedback.store.sqlite import SqliteFeedback
from deployments.platform.secret_environment import with_secrets
from serve_app.feedback.values import FeedbackError
from serve_app.model_store import default_cache_dir
from serve_app.settings import FeedbackSettings

FOLDER = "feedback"
PURPOSE = b"promptly-feedback"


def open_store(settings: FeedbackSettings) -> FeedbackStore:
    """Blocks while the file is opened. Raises: FeedbackError."""
    folder = Path(settings.path).expanduser() if settings.path else default_cache_dir() / FOLDER
    if settings.encryption_key_env is None:
        return SqliteFeedback(folder, settings)
    from deployments.platform.sealing import TenantSeal, sealing_keys  # only where something is sealed

    try:
        keys = sealing_keys(
            settings.encryption_key_env, with_secrets(os.environ), "the owner of the feedback"
        )
    except ValueError as error:  # SettingsError is one
        raise FeedbackError(f"feedback: {error}") from None
    return SqliteFeedback(folder, settings, TenantSeal(keys, PURPOSE))
