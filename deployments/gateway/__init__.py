"""The Gateway deployment: HTTP in, one request at a time through decide → execute → record."""

from deployments.gateway.deployment import Gateway

__all__ = ["Gateway"]
