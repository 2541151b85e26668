"""What uvicorn does with the trailers of a chunked request, mended.

Checked against uvicorn 0.54 and httptools 0.9 (llhttp). Both treat a trailer (a header behind the last chunk)
as a header of the request:

- ``HttpToolsProtocol.on_header`` appends it to the list that the application reads. A key or a content type
  counted if it came in the same packet as the head, and did not if it came later.
- llhttp takes ``Connection: close`` in a trailer for the end of the connection, after uvicorn has promised to
  keep it. Nothing more is read on it: behind a proxy that reuses connections, the next request there,
  anybody's, was never answered.

RFC 9110, section 6.5.1: trailers are not merged into the headers. When uvicorn moves, look at these two
callbacks; the test in ``tests/deployments/platform/test_trailers.py`` says whether this is still needed.
"""

from __future__ import annotations

import functools
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MARK = "_promptly_mends_trailers"


def mend_trailers(protocol: Any = HttpToolsProtocol) -> None:
    """For every connection that is made from now on in this process; more than once does no harm."""
    if getattr(protocol, MARK, False):
        return
    protocol.on_headers_complete = _with_own_headers(protocol.on_headers_complete)
    protocol.on_message_complete = _told_of_the_end(protocol.on_message_complete)
    setattr(protocol, MARK, True)


def _with_own_headers(original: Any) -> Any:
    @functools.wraps(original)
    def on_headers_complete(self: Any) -> None:
        original(self)
        self.scope["headers"] = list(self.headers)  # what is appended from now on is a trailer

    return on_headers_complete


def _told_of_the_end(original: Any) -> Any:
    @functools.wraps(original)
    def on_message_complete(self: Any) -> None:
        original(self)
        if self.cycle is None or self.parser.should_keep_alive():
            return
        self.cycle.keep_alive = False  # the answer says so, and the connection ends with it
        if self.cycle.response_complete:
            self.transport.close()

    return on_message_complete
