"""Where feedback lives."""
