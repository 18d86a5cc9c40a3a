"""Many simulated runs in parallel processes, kept in a log as they end."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from typing import Any, Final

from specmath import __version__
from specmath.append_log import AppendLog, kept_lines
from specmath.checks import require_count
from specmath.errors import AccessError, DataError, InputError, shown_path
from specmath.laws import AcceptanceLaw
from specmath.mixed_steps import StepTimes
from specmath.simulation.fingerprints import fingerprint
from specmath.simulation.policies import BatchPolicy
from specmath.simulation.runs import Routing, simulate
from specmath.simulation.statistics import ServiceLevel, Summary
from specmath.traffic import Limits, Trace, Traffic
from specmath.winning import Progress

HEAD: Final = {"schema": "specmath.simulation-log/1", "specmath_version": __version__}
"""First line of a log: another version may answer otherwise, and two of them do not mix."""
MAX_PROCESSES: Final = 1024
_Ended = Generator[tuple[int, Summary], None, None]
_REMEDY: Final = "start anew, or take another file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a series; fields as the arguments of `simulate`.

    Attributes:
        name: What it is, for a reader of the log; two runs of a series differ by what is asked, not by it.
        level: What a request must meet to count for goodput.
    """

    name: str
    traffic: Traffic | Trace
    steps: StepTimes
    limits: Limits
    policy: BatchPolicy
    requests: int | None = None
    seed: int = 0
    replicas: int = 1
    routing: Routing = "round_robin"
    laws: Sequence[AcceptanceLaw] = field(default=())
    level: ServiceLevel | None = None

    def summary(self) -> Summary:
        """Simulate it."""
        result = simulate(
            self.traffic,
            self.steps,
            self.limits,
            self.policy,
            requests=self.requests,
            seed=self.seed,
            replicas=self.replicas,
            routing=self.routing,
            laws=self.laws,
        )
        return result.summary(self.level)


def simulate_many(
    runs: Sequence[Run],
    *,
    processes: int | None = None,
    log: Path | None = None,
    resume: bool = False,
    fresh: bool = False,
    progress: Progress | None = None,
) -> tuple[Summary, ...]:
    """Summaries of many runs, in their order, whatever the number of processes.

    Each run has its own seed, so that what it answers depends on nothing else. With a log each summary is
    appended as it comes; Ctrl-C ends the series, and what is done is kept for a series that resumes.

    Args:
        runs: The runs. In several processes they must be picklable, and a script needs its
            `if __name__ == "__main__"`: processes are spawned.
        processes: At most so many at a time; one for each core where None. One process is this one.
        log: A JSONL file to keep summaries in.
        resume: Take up the log of an earlier series: runs that ask the same are not run again.
        fresh: Write over an earlier log.
        progress: Called with the runs done and the runs in all.

    Raises:
        InputError: for a run that cannot be simulated.
        AccessError: for a log that exists though neither `resume` nor `fresh` is set, or cannot be written.
        DataError: for a log of something else.
    """
    workers = int(require_count("processes", processes or os.cpu_count() or 1, 1, MAX_PROCESSES))
    keys = [fingerprint(run) for run in _nameless(runs)] if log is not None else []
    kept, size = _taken_up(log, resume=resume, fresh=fresh)
    done = {place: kept[key] for place, key in enumerate(keys) if key in kept}
    with AppendLog(log, size) if log is not None else nullcontext() as book:
        if book is not None and not size:
            book.append(HEAD)
        _tell(progress, len(done), len(runs))
        missing = [place for place in range(len(runs)) if place not in done]
        with closing(_each(runs, missing, workers)) as ended:
            for place, summary in ended:
                done[place] = summary
                if book is not None:
                    book.append({"run": keys[place], "name": runs[place].name, "summary": summary.as_row()})
                _tell(progress, len(done), len(runs))
    return tuple(done[place] for place in range(len(runs)))


def _nameless(runs: Sequence[Run]) -> Iterator[tuple[object, ...]]:
    """What each run asks."""
    for run in runs:
        yield tuple(getattr(run, name) for name in Run.__dataclass_fields__ if name != "name")


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def _taken_up(log: Path | None, *, resume: bool, fresh: bool) -> tuple[dict[str, Summary], int]:
    """Summaries of an earlier series by run, and the bytes of its log that stand."""
    if log is None or not log.exists():
        return {}, 0
    where = shown_path(log)
    if not log.is_file():
        raise AccessError(where, "is no file to keep runs in; take another one")
    if fresh:
        return {}, 0
    if not resume:
        raise AccessError(where, f"is the log of another series; resume it, {_REMEDY}")
    lines = kept_lines(log, _REMEDY)
    if lines and lines[0][0] != HEAD:
        raise DataError(where, f"is no log of simulations by specmath {__version__}; {_REMEDY}")
    summaries = {}
    for number, (line, _) in enumerate(lines[1:], 2):
        try:
            summaries[str(line["run"])] = Summary.from_row(line["summary"])
        except (KeyError, TypeError, AttributeError, InputError) as fault:
            raise DataError(where, f"line {number} is no summary of a run; {_REMEDY}") from fault
    return summaries, lines[-1][1] if lines else 0


def _each(
    runs: Sequence[Run], places: Sequence[int], workers: int
) -> Generator[tuple[int, Summary], None, None]:
    """Summaries of the runs at these places, as they end."""
    if min(workers, len(places)) <= 1:
        for place in places:
            yield place, runs[place].summary()
        return
    with _pool(min(workers, len(places))) as pool:
        waiting: dict[Future[Any], int] = {pool.submit(_answer, runs[place]): place for place in places}
        while waiting:
            ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ended:
                yield waiting.pop(future), _summary(future)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Spawned processes, which end at once when the series is broken off."""
    before = set(active_children())
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent
    )
    try:
        yield pool
    except BaseException:
        for child in set(active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal(SIGINT, SIG_IGN)


def _answer(run: Run) -> Summary | tuple[str, str]:
    """The summary, or name and problem of what cannot be simulated: an InputError crosses no process."""
    try:
        return run.summary()
    except InputError as fault:
        return fault.name, fault.problem


def _summary(future: Future[Any]) -> Summary:
    try:
        answer = future.result()
    except BrokenProcessPool as fault:
        problem = "a process was ended from outside, for want of memory perhaps; take fewer processes"
        raise AccessError("simulation", f"{problem}, and resume the log") from fault
    if isinstance(answer, Summary):
        return answer
    raise InputError(*answer)
