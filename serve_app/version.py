"""The version of Promptly. ``pyproject.toml`` and ``promptly --version`` read it here."""

VERSION = "0.1.0"
