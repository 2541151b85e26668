"""``python -m serve_app.settings FILE``: check a config file before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

from serve_app.errors import SettingsError
from serve_app.settings.load import load_file


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m serve_app.settings FILE", file=sys.stderr)
        return 2
    try:
        load_file(Path(arguments[0]))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
