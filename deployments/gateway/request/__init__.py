"""One request as the gateway holds it."""
