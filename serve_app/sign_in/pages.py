"""What a person sees in the browser where a login has failed."""

from __future__ import annotations

from html import escape

from serve_app.errors import PromptlyError

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Sign-in failed</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}}</style>
<h1>Sign-in failed</h1>
<p>{message}</p>
<p>Code: <code>{code}</code>. Request: <code>{request_id}</code>.</p>
<p><a href="/sign-in">Try again</a></p>
</html>
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""It runs no script, and loads nothing."""


def is_browser(accept: str) -> bool:
    """Whether a person's browser asks, by what it accepts: programs ask for JSON, or for anything."""
    return "text/html" in accept.lower()


def failure_page(error: PromptlyError, request_id: str) -> bytes:
    details = error.details
    return PAGE.format(
        message=escape(details.message),
        code=escape(details.code or details.type),
        request_id=escape(request_id),
    ).encode()
