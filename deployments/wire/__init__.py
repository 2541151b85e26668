"""HTTP between the parts: connections, listeners, direct calls.

Tokens do not travel through Ray calls: at 64 streams the median TTFT through them was five to ten times
that of HTTP from an engine's own listener (docs/benchmarks.md). So the control plane uses Serve's public API
(composition, scaling, health, ``broadcast``), and the data plane is HTTP.
"""
