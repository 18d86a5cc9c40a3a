"""A bar for long work: on a terminal only, late, and gone when the work is done."""

from __future__ import annotations

import io

import pytest

from specmath.cli import progress
from specmath.cli.progress import progress_shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def put_up(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal as stderr; not by a fixture, since pytest sets stderr anew for the test itself."""
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    return screen


def test_nothing_is_shown_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with progress_shown("working") as show:
        assert show is None


def test_long_work_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_up(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "REFRESH_S", 0.0)
    with progress_shown("working") as show:
        assert show is not None
        show(1, 4)
        assert "working" in terminal.getvalue()
        assert "25%" in terminal.getvalue()
        show(3, 4)
        assert "75%" in terminal.getvalue()
        before = len(terminal.getvalue())
        show(4, 4)  # takes the bar away
        assert len(terminal.getvalue()) > before
        assert "100%" not in terminal.getvalue()


def test_work_that_turns_out_shorter_or_longer_shows_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_up(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "REFRESH_S", 0.0)
    monkeypatch.setattr("rich.progress.TimeRemainingColumn.max_refresh", 0)
    with progress_shown("working") as show:
        assert show is not None
        show(1.0, 4.0)
        show(1.0, 2.0)
        assert "50%" in terminal.getvalue()
        show(1.5, 15.0)
        assert "10%" in terminal.getvalue()
        before = len(terminal.getvalue())
        show(3.0, 16.0)
        assert "0:00:01" in terminal.getvalue()[before:], "what is left is told for all that"


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_up(monkeypatch)
    with progress_shown("working") as show:
        assert show is not None
        for done in range(1, 5):
            show(done, 4)
    assert terminal.getvalue() == ""


def test_work_that_fails_takes_its_bar_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_up(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)

    def interrupted() -> None:
        with progress_shown("working") as show:
            assert show is not None
            show(1, 4)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is cleared
