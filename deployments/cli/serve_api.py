"""Ray's dashboard, as far as ``promptly apply`` asks it. Importing Ray would take seconds."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from serve_app.file_errors import said_of

APPLICATIONS = "/api/serve/applications/"
NODES = "/api/v0/nodes?detail=1&limit=10000"
DEFAULT_DASHBOARD = "http://127.0.0.1:8265"
VARIABLES = ("RAY_DASHBOARD_ADDRESS", "RAY_API_SERVER_ADDRESS")
TIMEOUT_S = 60.0
"""Serve's controller checks a config before it answers."""


class ApiError(Exception):
    """The dashboard cannot be asked, or refuses; the message says why."""


def dashboard_of(environment: Mapping[str, str]) -> tuple[str, str]:
    """Its URL and the token, from where Ray's own commands take it; an empty token where none is needed.
    Raises: ApiError: the token's file cannot be read."""
    url = next((environment[name] for name in VARIABLES if environment.get(name)), DEFAULT_DASHBOARD)
    token = environment.get("RAY_AUTH_TOKEN", "")
    file = environment.get("RAY_AUTH_TOKEN_PATH")
    if not file and environment.get("RAY_AUTH_MODE") == "token":
        file = str(Path(environment.get("HOME", "~")).expanduser() / ".ray" / "auth_token")
    if not token and file:
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ApiError(f"Ray's token (RAY_AUTH_TOKEN_PATH), {file!r}: {said_of(error)}") from error
    return url, token


class Refused(ApiError):
    """It has answered, and did not do what it was asked for."""


class ServeApi:
    """Calls of one dashboard. All methods raise: ApiError."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url if "//" in url else f"http://{url}"
        self._token = token

    def details(self) -> dict[str, Any]:
        """What runs."""
        return self._asked(APPLICATIONS)

    def put(self, document: Mapping[str, Any]) -> None:
        """Make this config what runs."""
        self._call("PUT", APPLICATIONS, json.dumps(document, default=str))  # YAML knows dates

    def resources(self) -> dict[str, float]:
        """The totals of all nodes that are alive, by Ray's names."""
        answer = self._asked(NODES)
        totals: dict[str, float] = {}
        for node in answer["data"]["result"]["result"]:
            if node["state"] == "ALIVE":
                for name, amount in node["resources_total"].items():
                    totals[name] = totals.get(name, 0.0) + amount
        return totals

    def _asked(self, path: str) -> dict[str, Any]:
        answer = self._call("GET", path)
        try:
            found = json.loads(answer)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ApiError(f"{self._url}: it is no dashboard of Ray's: set RAY_DASHBOARD_ADDRESS")
        return found

    def _call(self, method: str, path: str, body: str | None = None) -> bytes:
        try:
            parts = urlsplit(self._url)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise ApiError(f"RAY_DASHBOARD_ADDRESS = {self._url!r}: {error}") from error
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(host, port, timeout=TIMEOUT_S)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(
                f"{self._url}: {error}: is the application running? `source` the file of variables that "
                "its start printed, or set RAY_DASHBOARD_ADDRESS"
            ) from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            said = answer.decode(errors="replace").strip()
            raise Refused(f"{self._url}: status {response.status}: {said[-2000:]}")
        return answer
