"""The other gateways of this application."""
