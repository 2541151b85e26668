"""The files that the page on backups names are those that the parts write."""

from __future__ import annotations

import re
from pathlib import Path

from deployments.accounts import audit_log
from deployments.accounts.store import registry as accounts
from deployments.accounts.store import schema as accounts_schema
from deployments.cache.store import registry as cache
from deployments.cache.store.payload import generation
from deployments.feedback.store import registry as feedback
from deployments.feedback.store import schema as feedback_schema
from deployments.responses.store import registry as responses
from deployments.responses.store import schema as responses_schema
from serve_app.settings import (
    AccountSettings,
    CacheSettings,
    FeedbackSettings,
    ResponsesSettings,
    Settings,
)

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
ROW = re.compile(r"^\| [^|]+ \| (?P<files>[^|]*) \| `(?P<section>\w+)\.path` \|$", re.MULTILINE)


def documented() -> dict[str, set[str]]:
    """What stands in the table as code, by section of the settings."""
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("## Backup and moving") :].split("\n## ")[0]
    found: dict[str, set[str]] = {}
    for row in ROW.finditer(section):
        found.setdefault(row["section"], set()).update(re.findall(r"`([^`]+)`", row["files"]))
    return found


def test_the_files_of_a_backup_have_the_names_in_the_code() -> None:
    files = documented()
    older = audit_log.OLD_FILES.replace("*", "…")
    assert {
        f"{accounts.FOLDER}/{accounts_schema.FILE}",
        f"{accounts.FOLDER}/{audit_log.FILE}",
        audit_log.HEAD_FILE,
        older,
    } <= files["accounts"]
    assert f"{responses.FOLDER}/{responses_schema.FILE}" in files["responses"]
    assert f"{feedback.FOLDER}/{feedback_schema.FILE}" in files["feedback"]
    generations = generation("any", 1).partition("-")[0]
    assert {f"{cache.FOLDER}/{generations}-…", f"{cache.FOLDER}/{cache.SHARD}2/"} <= files["cache"]


def test_each_setting_of_a_folder_is_one() -> None:
    sections = {
        "accounts": AccountSettings,
        "responses": ResponsesSettings,
        "feedback": FeedbackSettings,
        "cache": CacheSettings,
    }
    assert documented().keys() == sections.keys()
    assert sections.keys() <= Settings.model_fields.keys()
    assert all("path" in section.model_fields for section in sections.values())
