"""Usage: what each key, user and tenant used of each model on each day."""

from serve_app.usage.query import UsageQuery, parse_usage_query
from serve_app.usage.rows import Counts, UsagePage, UsageRow

__all__ = ["Counts", "UsagePage", "UsageQuery", "UsageRow", "parse_usage_query"]
