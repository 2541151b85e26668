"""HTTP between the parts: connections, listeners, direct calls."""
