"""The console: which files it consists of, and the response headers that keep its pages to themselves."""

from __future__ import annotations

from collections.abc import Mapping

VENDORED_SCRIPTS = (
    "vendor/uplot/uPlot.iife.min.js",
    "vendor/htm/standalone.umd.js",
    "vendor/marked/marked.umd.js",
    "vendor/dompurify/purify.min.js",
)
OWN_SCRIPTS = (
    "base.js",
    "api.js",
    "markdown.js",
    "waterfall.js",
    "charts.js",
    "stream.js",
    "playground.js",
    "requests.js",
    "live.js",
    "fleet.js",
    "cache.js",
    "alerts.js",
    "plan.js",
    "usage.js",
    "app.js",
)

FILES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "vendor.js": ("text/javascript; charset=utf-8", VENDORED_SCRIPTS),
    "console.js": ("text/javascript; charset=utf-8", OWN_SCRIPTS),
    "console.css": ("text/css; charset=utf-8", ("vendor/uplot/uPlot.min.css", "console.css")),
}
"""The media type of each served file, and the files that it is joined from: a page is few requests."""

PAGE = "index.html"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)
"""Nothing from other hosts, no inline script or style. Text becomes HTML through DOMPurify or not at all
(`require-trusted-types-for`), also where a later change of the page forgets that."""

HEADERS: Mapping[str, str] = {
    "cache-control": "no-cache",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
PAGE_HEADERS = {**HEADERS, "content-security-policy": POLICY, "x-frame-options": "DENY"}


def wants_page(accept: str | None) -> bool:
    """Whether the header `Accept` names HTML, as browsers' navigations do. ``*/*`` is no browser."""
    kinds = (part.partition(";")[0].strip().lower() for part in (accept or "").split(","))
    return "text/html" in kinds


def takes_gzip(accept_encoding: str | None) -> bool:
    """Whether the header `Accept-Encoding` names gzip and does not exclude it with ``q=0``."""
    for part in (accept_encoding or "").lower().split(","):
        coding, _, parameters = part.partition(";")
        if coding.strip() == "gzip":
            return parameters.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
