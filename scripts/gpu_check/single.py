"""One check in a process of its own, which :mod:`gpu_check.runner` starts.

python -m gpu_check.single REGISTRY CHECK MODEL FOLDER
"""

from __future__ import annotations

import importlib
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import msgspec

from gpu_check.contract import Bench, Check, Finding, failed
from gpu_check.machine import read_machine
from gpu_check.runner import FINDINGS

REASON_CHARACTERS = 4000


def main(arguments: Sequence[str]) -> None:
    registry, name, model, folder = arguments
    signal.signal(signal.SIGTERM, _leave)
    checks: Sequence[Check] = importlib.import_module(registry).CHECKS
    (check,) = (each for each in checks if each.name == name)
    with (Path(folder) / FINDINGS).open("ab", buffering=0) as findings:

        def tell(found: Finding) -> None:
            findings.write(msgspec.json.encode(found) + b"\n")

        try:
            for found in check.run(Bench(model, read_machine(), Path(folder))):
                tell(found)
        except Exception as error:  # whatever a check raises is its result
            traceback.print_exc()
            tell(failed(name, f"{type(error).__name__}: {error}"[-REASON_CHARACTERS:]))


def _leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM unwinds: a check's ``with`` blocks end what they started."""
    sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
