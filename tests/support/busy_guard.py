"""A guard that keeps its gateway's core busy, and makes the scripted engine say which gateway has asked it.

Gateways import it by its name in the settings.
"""

from __future__ import annotations

import os
import time

from serve_app.guardrails import Check, Replace

WORK_S = 0.05


async def busy(check: Check) -> Replace:
    """Works in the event loop, as no guard may. It counts CPU time: on a slow machine the loop is later, and
    the work no shorter."""
    until = time.thread_time() + WORK_S
    while time.thread_time() < until:
        pass
    return Replace((f"say {os.getpid()}",) * len(check.texts))
