"""The newest finished requests, for a person who looks at them."""

from serve_app.recent.query import Query, parse_query
from serve_app.recent.ring import Found, Recent, merged

__all__ = ["Found", "Query", "Recent", "merged", "parse_query"]
