"""The configuration of HAProxy in front of the gateways: Serve's own config, hardened for public clients."""

from serve_app.front_door.binary import with_json_errors
from serve_app.front_door.config import ProxyFiles, TemplateChangedError, harden
from serve_app.front_door.error_pages import error_pages, http_text

__all__ = ["ProxyFiles", "TemplateChangedError", "error_pages", "harden", "http_text", "with_json_errors"]
