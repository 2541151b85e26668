"""Settings of prompts that are files."""

from __future__ import annotations

from pydantic import Field

from serve_app.settings.base import Frozen


class PromptSettings(Frozen):
    """Prompts with versions, which requests name: `prompt: {id, version, variables}` (docs/experiments.md).
    Changes of the files take effect without a restart."""

    folder: str = Field(
        min_length=1,
        description="A folder of `ID/VERSION.md` or `.yaml`, and `labels.yaml`; the same on every machine "
        "that has a gateway.",
    )
    check_period_s: float = Field(
        default=2.0, gt=0, le=3600, description="Between two looks at the folder for changed files."
    )
    max_files: int = Field(default=10_000, ge=1, description="Of the folder; the rest is left out.")
    max_file_bytes: int = Field(default=1 << 18, ge=1, description="A longer file is not read.")
    max_chars: int = Field(
        default=1_000_000, ge=1, description="Of a prompt with its variables filled in; more is refused."
    )
