"""Sign-in: asks the provider for its keys, checks tokens and sessions, and serves the console's login."""
