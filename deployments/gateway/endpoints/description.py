"""``/version``, ``/openapi.json`` and ``/docs``: the description of this endpoint."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from deployments.gateway.request.exchange import Exchange, Handler
from serve_app.api import openapi
from serve_app.model_choice.names import ModelNames

DISTRIBUTION = "promptly-serve"
UNINSTALLED = "0+source"
HTML = "text/html; charset=utf-8"


class Description:
    """Open to everyone: it names only paths and fields. Models are listed only where no key is needed."""

    def __init__(self, names: ModelNames, *, has_keys: bool) -> None:
        self.number = _version()
        self._models = [] if has_keys else list(names)

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers by the names that the table of routes uses."""
        return {
            "version": self.version,
            "openapi": self.openapi,
            "docs": self.docs,
        }

    async def version(self, exchange: Exchange) -> None:
        await exchange.respond_json({"version": self.number})

    async def openapi(self, exchange: Exchange) -> None:
        await exchange.respond_json(self._document(exchange))

    async def docs(self, exchange: Exchange) -> None:
        page = openapi.page(self._document(exchange)).encode()
        await exchange.respond(200, page, HTML, {"content-security-policy": openapi.PAGE_POLICY})

    def _document(self, exchange: Exchange) -> dict[str, Any]:
        return openapi.document(self.number, exchange.root_path, self._models)


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return UNINSTALLED
