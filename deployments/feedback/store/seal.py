"""The contract of what seals texts at rest."""

from __future__ import annotations

from typing import Protocol


class Seal(Protocol):
    """See ``deployments/platform/sealing.py``."""

    def seal(self, tenant: str, plain: bytes, context: bytes) -> bytes: ...

    def open(self, tenant: str, secret: bytes, context: bytes) -> bytes | None: ...
