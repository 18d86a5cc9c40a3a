"""What every test starts from."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_overlay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue as it is packaged, whatever the developer's shell has set."""
    monkeypatch.delenv("SPECMATH_HARDWARE", raising=False)
