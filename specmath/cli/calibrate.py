"""`specmath calibrate`: what does my machine, or my server, really do?"""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from specmath.cli.calibrate_files import calibration_path, write_checked
from specmath.cli.calibrate_options import (
    DEFAULT_FILE,
    CalibrationOutput,
    MachineOptions,
    RunOptions,
    ServerOptions,
    TextOptions,
    ToldOptions,
)
from specmath.cli.options import OutputOptions, with_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from calibrate.requests import Request
    from specmath.calibrations import MeasuredRuns
    from specmath.results import Result

_ALLOWED = {
    "server": {"server", "baseline", "model", "concurrency", "prompts", "temperature", "new_tokens", "k"}
    | {"seed", "time_limit"},
    "runs": {"runs", "set_up"},
    "history": {"history", "source_engine", "k", "context"},
}
"""Options that mean something to each way to calibrate from outside."""
_OUTSIDE = {"server", "baseline", "model", "concurrency", "runs", "set_up", "history", "source_engine"}


@with_options
def calibrate(
    machine: MachineOptions,
    texts: TextOptions,
    server: ServerOptions,
    told: ToldOptions,
    run: RunOptions,
    output: CalibrationOutput,
) -> None:
    """What does my machine really do? Times, acceptance, fitted costs, and a proof of the prediction.

    Of a pair on this machine (pip install 'specmath\\[calibrate]'); or, without torch,
    of a live server, a table of runs, weeks of metrics. The file that it writes answers
    every question as --measured FILE.
    """
    way = _way(machine, server, told)
    _refuse_strays(way, machine, texts, server, told, run)
    if way == "runs":  # quickly made again: nothing to keep unless a file is named
        path = None if output.output is None else calibration_path(output.output)
        summary = _kept(_of_runs(told), path)
    else:
        path = calibration_path(output.output or DEFAULT_FILE, quietly=run.dry_run)
        if way == "machine":
            summary = _of_pair(machine, texts, run, path)
        elif way == "server":
            summary = _kept(_of_server(machine, texts, server, run), path)
        else:
            summary = _kept(_of_history(machine, told), path)
    _emit(summary, output)


def _way(machine: MachineOptions, server: ServerOptions, told: ToldOptions) -> str:
    """Which of the ways to calibrate is asked for."""
    from specmath.cli.text import option
    from specmath.errors import InputError

    named = {"target": machine.target, "draft": machine.draft}
    outside = {"server": server.server, "runs": told.runs, "history": told.history}
    pair, others = (
        [name for name, value in group.items() if value is not None] for group in (named, outside)
    )
    if len(others) + bool(pair) > 1:
        first, second = (*pair[:1], *others)[:2]
        raise InputError(first, f"excludes {option(second)}: calibrate one of them at a time")
    if others:
        return others[0]
    if len(pair) == 1:
        missing = "draft" if pair == ["target"] else "target"
        hint = "; ngram looks drafts up in the text" if missing == "draft" else ""
        raise InputError(missing, f"is missing beside --{pair[0]}{hint}")
    if not pair:
        raise InputError("target", "is missing; give --target and --draft, or --server, --runs or --history")
    return "machine"


def _refuse_strays(way: str, *records: Any) -> None:
    """Options that mean nothing to the way chosen are refused, not passed over."""
    from specmath.errors import InputError

    typed = [
        field.name
        for record in records
        for field in fields(record)
        if getattr(record, field.name) not in (None, False)
    ]
    if {"resume", "fresh"} <= set(typed):
        raise InputError("resume", "excludes --fresh: one takes an interrupted run up, the other forgets it")
    allowed = _ALLOWED.get(way)
    strays = [name for name in typed if (name in _OUTSIDE if allowed is None else name not in allowed)]
    if strays:
        beside = "--target and --draft" if allowed is None else f"--{way}"
        raise InputError(strays[0], f"means nothing beside {beside}; leave it out")


def _emit(summary: Result, output: CalibrationOutput) -> None:
    from specmath.cli.output import emit

    emit(summary, OutputOptions(format=output.format, explain=output.explain, debug=output.debug))


# ---------------------------------------------------------------- a pair on this machine


def _of_pair(machine: MachineOptions, texts: TextOptions, run: RunOptions, path: Path) -> Result:
    from specmath.cli import INTERRUPTED

    request = _request(machine, texts, run)
    _require_torch()
    from calibrate.plans import planned

    if run.dry_run:
        return planned(request)
    from calibrate.opened import open_pair
    from calibrate.run import calibrate_pair
    from specmath.calibration_tables import CalibrationTable
    from specmath.errors import shown_path

    log = path.with_name(path.name + ".log.jsonl")
    finished = path.exists() and log.exists() and log.stat().st_mtime <= path.stat().st_mtime
    if run.resume and not log.exists():
        sys.stderr.write(f"specmath: {shown_path(log)} is not there: nothing to take up, a new run begins\n")
    with _spoken("loading the models"):
        pair = open_pair(request)
    try:
        calibration = calibrate_pair(
            pair,
            log,
            watch=_spoken,
            resume=run.resume,
            fresh=run.fresh or (finished and not run.resume),
        )
    except (KeyboardInterrupt, SystemExit) as end:  # the latter for SIGTERM and SIGHUP
        kept = f"{shown_path(log)} keeps what is done, --resume takes it up"
        sys.stderr.write(f"specmath: error: interrupted; {kept}\n")
        raise SystemExit(INTERRUPTED if isinstance(end, KeyboardInterrupt) else end.code) from None
    write_checked(calibration, path)
    return CalibrationTable(calibration=calibration, k=request.ks, file=str(path))


def _spoken(what: str) -> AbstractContextManager[Callable[[float, float], None] | None]:
    """The progress of a piece of work, which is named on stderr as it begins."""
    from specmath.cli.progress import progress_shown

    sys.stderr.write(f"specmath: {what}\n")
    return progress_shown(what)


def _require_torch() -> None:
    from importlib.util import find_spec

    from specmath.errors import AccessError

    missing = [name for name in ("torch", "transformers", "safetensors") if find_spec(name) is None]
    if missing:
        problem = "is not installed; pip install 'specmath[calibrate]', or calibrate a server with --server"
        raise AccessError(missing[0], problem)


def _request(machine: MachineOptions, texts: TextOptions, run: RunOptions) -> Request:
    from calibrate.requests import Request
    from specmath.axes import parse_axis
    from specmath.cli.text import given_or, parse_count, parse_number

    def counts(name: str, text: str | None) -> tuple[int, ...] | None:
        return None if text is None else tuple(parse_axis(name, text, whole=True))

    def count(name: str, text: str | None) -> int | None:
        return None if text is None else parse_count(name, text)

    return Request(
        target=str(machine.target),
        draft=str(machine.draft),
        device=machine.device,
        dtype=machine.dtype,
        regime=machine.regime,
        threads=count("threads", machine.threads),
        batches=counts("batch", machine.batch),
        contexts=counts("context", machine.context),
        ks=tuple(parse_axis("k", given_or(machine.k, "2,4,8"), whole=True)),
        prompts=texts.prompts,
        temperatures=tuple(parse_axis("temperature", given_or(texts.temperature, "0,1"))),
        top_ps=tuple(parse_axis("top_p", given_or(texts.top_p, "1"))),
        new_tokens=parse_count("new_tokens", given_or(texts.new_tokens, "128")),
        quick=run.quick,
        time_limit_s=None if run.time_limit is None else parse_number("time_limit", run.time_limit),
        skip=frozenset(part.strip() for part in run.skip.split(",")) if run.skip else frozenset(),
        seed=parse_count("seed", given_or(run.seed, "0")),
    )


# ---------------------------------------------------------------- from outside


def _of_server(
    machine: MachineOptions, texts: TextOptions, server: ServerOptions, run: RunOptions
) -> MeasuredRuns:
    from calibrate.prompts import builtin_prompts, read_prompts
    from calibrate.serving.load_plan import LoadPlan, LoadProgress, Prompt
    from calibrate.serving.server import measure_server
    from specmath.cli.progress import progress_shown
    from specmath.cli.text import given_or, parse_count, parse_number

    plan = LoadPlan(
        concurrency=parse_count("concurrency", given_or(server.concurrency, "8")),
        output_tokens=parse_count("new_tokens", given_or(texts.new_tokens, "128")),
        temperature=parse_number("temperature", given_or(texts.temperature, "0")),
        seed=parse_count("seed", given_or(run.seed, "0")),
        level_s=parse_number("time_limit", given_or(run.time_limit, "60")),
    )
    prompts: list[Prompt]
    if texts.prompts is None:  # as plain text: not every model has a chat template
        prompts = [prompt.as_text for prompt in builtin_prompts()]
    else:
        prompts = [prompt.messages or prompt.text for prompt in read_prompts(texts.prompts)]
    sys.stderr.write(f"specmath: {plan.bounds(1 + (server.baseline is not None))}\n")
    with progress_shown("asking the server") as shown:
        said: set[tuple[str, int]] = set()

        def told(where: LoadProgress) -> None:
            if shown is not None:
                level = plan.levels.index(where.concurrency)
                shown(level * where.most + where.done, len(plan.levels) * where.most)
            elif (where.server, where.concurrency) not in said:
                said.add((where.server, where.concurrency))
                sys.stderr.write(f"specmath: {where.server}: {where.concurrency} at a time\n")

        return measure_server(
            str(server.server),
            prompts,
            plan,
            baseline=server.baseline,
            model=server.model,
            k=None if machine.k is None else parse_count("k", machine.k),
            progress=told,
        ).runs


def _of_runs(told: ToldOptions) -> MeasuredRuns:
    from calibrate.runs import calibrate_runs
    from specmath.axes import parse_record
    from specmath.run_files import SETUP_COLUMNS

    chosen = parse_record("set_up", told.set_up, SETUP_COLUMNS) if told.set_up else None
    return calibrate_runs(str(told.runs), set_up=chosen)


def _of_history(machine: MachineOptions, told: ToldOptions) -> MeasuredRuns:
    from calibrate.history import calibrate_history
    from specmath.cli.text import given_or, parse_count, parse_number

    engine, _, version = given_or(told.source_engine, "").partition("@")
    with _spoken("asking Prometheus") as progress:
        return calibrate_history(
            str(told.history),
            engine=engine or None,
            version=version or None,
            k=None if machine.k is None else parse_count("k", machine.k),
            context=parse_number("context", given_or(machine.context, "0")),
            progress=progress,
        )


def _kept(measured: MeasuredRuns, path: Path | None) -> Result:
    from specmath.calibration_tables import RunsTable

    if path is not None:
        write_checked(measured, path)
    return RunsTable(measured=measured, file=str(path or ""))
