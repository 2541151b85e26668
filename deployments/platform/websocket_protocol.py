"""What uvicorn's WebSockets take from clients: nothing compressed, no message far beyond the setting.

Checked against uvicorn 0.54. Servers that Serve makes run with uvicorn's defaults, with which a frame of
16 KB that grows to 16 MiB is inflated in the event loop, and fifteen of them before reading pauses. Base64 of
audio gains little by compression, so clients are not offered it.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MARK: Final = "_promptly_bounds_it"
BOUND: Final = "_promptly_max_bytes"
ROOM: Final = 65_536
"""Bytes beyond the bound that are still read, so that the gateway tells the client why it is closed. What is
larger is closed by uvicorn alone, with the same code (1009)."""


def bound_websockets(max_event_bytes: int | None = None, protocol: Any = WebSocketsSansIOProtocol) -> None:
    """Bound every WebSocket that this process accepts from now on, at the servers that choose no WebSocket
    protocol themselves (a private listener does, and has its own bounds). ``max_event_bytes``: the gateway's
    setting; ``None``: as it was (Serve's own proxy process does not know it). More calls do no harm."""
    if max_event_bytes is not None:
        setattr(protocol, BOUND, max_event_bytes + ROOM)
    if not getattr(protocol, MARK, False):
        protocol.__init__ = _bounded(protocol.__init__)
        setattr(protocol, MARK, True)


def _bounded(original: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, config: Any, *args: Any, **options: Any) -> None:
        if config.ws == "auto":
            config = copy.copy(config)  # the server's own stays as it is
            config.ws_per_message_deflate = False
            config.ws_max_size = min(config.ws_max_size, getattr(self, BOUND, config.ws_max_size))
        original(self, config, *args, **options)

    return init
