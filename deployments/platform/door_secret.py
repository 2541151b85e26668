"""The secret by which gateways know that HAProxy wrote a header (`x-promptly-client`).

`make serve` writes it for each start. Without it, gateways take the address of their peer for the client's,
and know none of what comes through the Unix socket of HAProxy on their node.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

DOOR_SECRET_FILE = "PROMPTLY_DOOR_SECRET_FILE"
"""Names the file in the environment of Ray. The secret is letters and digits."""

logger = logging.getLogger("ray.serve")


def load_door_secret(environment: Mapping[str, str]) -> str | None:
    """``None`` where there is none, or it cannot be read."""
    named = environment.get(DOOR_SECRET_FILE)
    if named is None:
        return None
    try:
        secret = Path(named).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        logger.warning("%s = %r: %s: clients' addresses are not known", DOOR_SECRET_FILE, named, error)
        return None
    return secret if secret.isalnum() else None
