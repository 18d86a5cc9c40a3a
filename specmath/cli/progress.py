"""Progress of long work, on stderr where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_S = 0.7
"""Seconds before a bar is shown: most work is done by then."""
REFRESH_S = 0.1


@contextmanager
def progress_shown(what: str) -> Iterator[Callable[[float, float], None] | None]:
    """A callback that draws a bar from the work done and the work in all; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(what)
    try:
        yield bar.show
    finally:
        bar.close()


class _Bar:
    """A bar that appears once the work has taken a while, and goes when it is done."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.shown: Progress | None = None
        self.next_s = time.monotonic() + PATIENCE_S

    def show(self, done: float, total: float) -> None:
        if done >= total:
            self.close()
        elif time.monotonic() >= self.next_s:
            self._draw(done, total)
            self.next_s = time.monotonic() + REFRESH_S

    def _draw(self, done: float, total: float) -> None:
        if self.shown is None:
            from rich.console import Console  # heavy: only where a bar is drawn
            from rich.progress import Progress

            self.shown = Progress(console=Console(stderr=True), transient=True, auto_refresh=False)
            self.shown.add_task(self.what, total=1.0)  # with a new total rich forgets how fast it goes
            self.shown.start()
        self.shown.update(self.shown.task_ids[0], completed=done / total, refresh=True)

    def close(self) -> None:
        if self.shown is not None:
            self.shown.stop()
            self.shown = None
