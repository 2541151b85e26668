"""Why a start ends: it failed, or it was asked to stop."""

from __future__ import annotations


class StartError(RuntimeError):
    """The start failed; the message is written for the user."""


class StopRequestedError(Exception):
    """Ctrl-C, SIGTERM or SIGHUP arrived."""
