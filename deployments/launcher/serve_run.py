"""``serve run FILE`` of a Ray that is still starting: this process imports Serve meanwhile, which takes
seconds (docs/benchmarks.md), and goes on when it reads a line."""

from __future__ import annotations

import sys


def main() -> None:
    from ray.serve.scripts import cli

    if sys.stdin.readline():  # none: the launcher has ended
        cli(["run", *sys.argv[1:]], prog_name="serve")


if __name__ == "__main__":
    main()
