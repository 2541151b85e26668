"""HTTP between the parts: connections, listeners, direct calls.

Why tokens do not travel through Ray calls: with 64 streams on two cores, relaying HTTP bytes from an
engine's own listener gave a median TTFT of 39 ms and 3,079 tok/s (the bare engine: 24 ms, 3,166 tok/s); the
same through Ray calls gave 186-387 ms and 1,726-2,401 tok/s. So the control plane uses Serve's public API
(composition, scaling, health, ``broadcast``), and the data plane is HTTP.
"""
