"""Keys kept in a file instead of the environment of every process on a node.

``PROMPTLY_SECRETS_FILE`` names a JSON file, ``{"VARIABLE": "value", …}``, that only its owner may read. The
variables that the settings name (`key_env`, `keys_env`, `client_secret_env`, …) are looked up there first. It
is read by the application's builder, which passes the upstreams' keys to the gateways, and by the cache.
`make serve` writes it from its own environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from serve_app.errors import SettingsError
from serve_app.file_errors import said_of

FILE = "PROMPTLY_SECRETS_FILE"
OTHERS = 0o077


def with_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, overridden by the secrets file.

    Raises:
        SettingsError: the file cannot be read, is readable by others, or is not a JSON object of strings. The
            message never shows its content.
    """
    name = environment.get(FILE)
    return dict(environment) | (_read(Path(name)) if name else {})


def _read(path: Path) -> dict[str, str]:
    try:
        mode = path.stat().st_mode & 0o777
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{FILE} = {str(path)!r}: {said_of(error)}") from None
    except ValueError:
        raise SettingsError(f"{FILE}: {path}: expected a JSON object") from None
    if mode & OTHERS:
        raise SettingsError(f"{FILE}: {path}: others may read it (mode {mode:o}): expected mode 600")
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise SettingsError(f"{FILE}: {path}: expected a JSON object whose values are strings")
    return found
