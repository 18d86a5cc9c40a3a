"""The options of `specmath calibrate`, a record for each way to calibrate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from specmath.cli.options import Text, model_completion

_pair = partial(typer.Option, rich_help_panel="A pair of models on this machine")
_text = partial(typer.Option, rich_help_panel="Acceptance of that pair")
_server = partial(typer.Option, rich_help_panel="A live server, from outside")
_told = partial(typer.Option, rich_help_panel="What others measured")
_run = partial(typer.Option, rich_help_panel="The run")
_output = partial(typer.Option, rich_help_panel="Output")

DEFAULT_FILE = "calibration.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOptions:
    """The pair whose passes are timed here, and over which grid."""

    target: Annotated[
        Text,
        _pair(
            metavar="MODEL",
            help="Folder or hub id, safetensors only; random:NAME for random weights of a catalogue model.",
            autocompletion=lambda incomplete: [f"random:{name}" for name in model_completion(incomplete)],
        ),
    ] = None
    draft: Annotated[Text, _pair(metavar="MODEL", help="The same of the draft; ngram for a lookup.")] = None
    device: Annotated[
        Text,
        _pair(
            metavar="cpu|cuda[:N]",
            help="With --dry-run a part of the catalogue too. \\[default: cuda where there is one]",
        ),
    ] = None
    dtype: Annotated[
        Text, _pair(metavar="bf16|fp16|fp32", help="\\[default: bf16 on a GPU, fp32 on a CPU]")
    ] = None
    regime: Annotated[
        Text,
        _pair(metavar="eager|cuda-graph|compile", help="\\[default: cuda-graph on a GPU, eager on a CPU]"),
    ] = None
    threads: Annotated[Text, _pair(metavar="N", help="Of torch on a CPU. \\[default: cores less one]")] = None
    batch: Annotated[
        Text, _pair(metavar="B", help="Sequences in a pass. \\[default: 1:256:x2; on a CPU 1:8:x2]")
    ] = None
    context: Annotated[
        Text,
        _pair(metavar="C", help="Tokens in the cache, per sequence. \\[default: 512,8k; on a CPU 128,1k]"),
    ] = None
    k: Annotated[
        Text,
        _pair(
            "--k",
            metavar="k",
            help="Draft lengths to prove; of a server or history, its k where it does not tell. "
            "\\[default: 2,4,8]",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """What is generated to measure acceptance, and how it is sampled."""

    prompts: Annotated[
        Text,
        _text(
            metavar="FILE",
            help="Text (a paragraph a prompt) or JSONL (prompt or messages, domain). \\[default: a small "
            "set of code, extraction, chat and prose]",
        ),
    ] = None
    temperature: Annotated[Text, _text(metavar="T", help="\\[default: 0,1]")] = None
    top_p: Annotated[Text, _text(metavar="P", help="\\[default: 1]")] = None
    new_tokens: Annotated[Text, _text(metavar="N", help="Tokens per text. \\[default: 128]")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """A server that is asked at rising concurrency."""

    server: Annotated[
        Text, _server(metavar="URL", help="Base URL of an OpenAI-compatible server with speculation on.")
    ] = None
    baseline: Annotated[
        Text, _server(metavar="URL", help="The same model with speculation off: gives the speed-up.")
    ] = None
    model: Annotated[Text, _server(metavar="NAME", help="As the server names it; where it has several.")] = (
        None
    )
    concurrency: Annotated[
        Text, _server(metavar="N", help="Most requests in flight, reached by doubling. \\[default: 8]")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldOptions:
    """Measurements that are there already."""

    runs: Annotated[
        Text,
        _told(
            metavar="FILE", help="CSV or JSONL of runs: k, batch, tpot_ms, acceptance_length, …; - for stdin."
        ),
    ] = None
    set_up: Annotated[
        Text,
        _told(metavar="engine=vllm,target=…", help="Of --runs with several set-ups: the one that is meant."),
    ] = None
    history: Annotated[
        Text,
        _told(
            metavar="prometheus:URL",
            help="Weeks of an engine's metrics; a day with speculation off gives both arms.",
        ),
    ] = None
    source_engine: Annotated[
        Text, _told(metavar="NAME[@VERSION]", help="Of --history: the engine, where recognition needs help.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How the run goes."""

    quick: Annotated[bool, _run("--quick", help="A coarse grid, in about 30 s on a GPU.")] = False
    dry_run: Annotated[
        bool, _run("--dry-run", help="Show the grid, its memory and its time; measure nothing.")
    ] = False
    time_limit: Annotated[
        Text,
        _run(
            metavar="SECONDS",
            help="For the passes \\[default: 90, with --quick 20]; of a server, for each concurrency "
            "\\[default: 60]",
        ),
    ] = None
    skip: Annotated[Text, _run(metavar="acceptance,proof", help="Parts to leave out.")] = None
    resume: Annotated[bool, _run("--resume", help="Take up a run that was interrupted.")] = False
    fresh: Annotated[bool, _run("--fresh", help="Forget a run that was interrupted.")] = False
    seed: Annotated[Text, _run(metavar="N", help="Of order, texts and coins. \\[default: 0]")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOutput:
    """The calibration file, and what stdout says of it."""

    output: Annotated[
        Text,
        _output(
            "--output",
            "-o",
            metavar="FILE.yaml",
            help="The calibration, for --measured; of a pair, the log of every repeat lies beside it. "
            "\\[default: calibration.yaml; of --runs none]",
        ),
    ] = None
    format: Annotated[
        Text,
        _output(
            "--format",
            "-f",
            metavar="FORMAT",
            help="Of stdout: table, md, csv, json, latex or html.",
        ),
    ] = None
    explain: Annotated[bool, _output("--explain", help="Add all constants and assumptions.")] = False
    debug: Annotated[bool, _output("--debug", help="Show the traceback of an error.")] = False
