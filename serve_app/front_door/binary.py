"""Replaces the error texts inside HAProxy's program file by errors in OpenAI's format.

If a request breaks before HAProxy has read it completely (invalid HTTP, headers that are too long or too
late), its HTTP/1 parser answers with built-in texts and ignores ``errorfile`` (2.8: ``h1_send_error`` in
mux_h1.c). So the proxy runs a copy of the program with other texts, none longer than the original. A program
without these texts (another version or build) stays unchanged: its clients get HTML in these cases.
"""

from __future__ import annotations

import json
import re

FITTING = {
    b"400 Bad request": ("Malformed HTTP or headers > 15 kB", "invalid_request_error", None),
    b"408 Request Time-out": ("The headers came too slowly.", "timeout_error", "header_timeout"),
    b"413 Payload Too Large": ("HTTP/1.0 with chunks.", "invalid_request_error", None),
    b"422 Unprocessable Content": ("Unknown transfer encoding.", "invalid_request_error", None),
    b"500 Internal Server Error": ("The proxy failed.", "internal_error", None),
    b"501 Not Implemented": ("The proxy does not know this encoding.", "invalid_request_error", None),
}
"""Message, type and code by status line. Messages must be short: the first original text has 207 bytes."""


def with_json_errors(program: bytes) -> bytes | None:
    """The program with its texts replaced; ``None`` if one is missing or too short."""
    for reason, error in FITTING.items():
        found = list(re.finditer(rb"HTTP/1\.1 " + reason + rb"\r\n[^\0]*<html>[^\0]*\0", program))
        new = _text(reason, *error)
        if len(found) != 1 or len(found[0].group()) <= len(new):
            return None
        start, end = found[0].span()
        program = program[:start] + new.ljust(end - start, b"\0") + program[end:]
    return program


def _text(reason: bytes, message: str, kind: str, code: str | None) -> bytes:
    error = {"message": message, "type": kind, "param": None, "code": code}
    body = json.dumps({"error": error}, separators=(",", ":")).encode()
    lines = [b"HTTP/1.1 %s " % reason[:3], b"Content-length: %d" % len(body), b"Connection: close"]
    return b"\r\n".join([*lines, b"Content-Type: application/json", b"", body])
