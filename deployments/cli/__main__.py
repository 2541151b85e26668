"""``python -m deployments.cli``: the command ``promptly`` where the package is not installed."""

from deployments.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
