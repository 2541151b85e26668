"""Sign-in: what the tokens of an OpenID Connect provider prove and mean, and the console's sessions."""
