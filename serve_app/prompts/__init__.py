"""Prompts as files: versions, labels that name versions, and what a request makes of them."""

from serve_app.prompts.library import EMPTY, Library, Prompt
from serve_app.prompts.reference import Reference
from serve_app.prompts.resolved import Resolved, placed
from serve_app.prompts.version import PromptVersion

__all__ = ["EMPTY", "Library", "Prompt", "PromptVersion", "Reference", "Resolved", "placed"]
