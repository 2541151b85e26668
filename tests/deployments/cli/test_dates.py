"""Times as the command line writes them."""

from __future__ import annotations

from deployments.cli.dates import utc_text


def test_a_time_is_a_date_of_utc_to_the_second() -> None:
    assert utc_text(1_764_331_200.9) == "2025-11-28T12:00:00Z"
