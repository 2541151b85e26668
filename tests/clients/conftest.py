"""The pinned clients."""

from __future__ import annotations

import pytest
from support.client_tools import ClientTools, ToolsUnreachable, install

from serve_app.model_store import default_cache_dir


@pytest.fixture(scope="session")
def client_tools() -> ClientTools:
    """Installed the first time, in under a minute."""
    try:
        return install(default_cache_dir())
    except ToolsUnreachable as error:
        pytest.skip(f"the pinned clients are not installed: {error}")
