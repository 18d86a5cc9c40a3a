"""Options that several commands share, as records, and the decorator that spreads them into a command line.

A command declares `acceptance: AcceptanceOptions`; `with_options` gives typer one option per field of the
record and hands the command the filled record. Options stay text here: what they mean is decided in
`specmath.cli.laws`, `models` and `cases`, so that `--help` imports neither numpy nor yaml.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, get_type_hints

import typer

from specmath.errors import InputError

_acceptance = partial(typer.Option, rich_help_panel="Acceptance: one law")
_hardware = partial(typer.Option, rich_help_panel="Step times: hardware and models")
_ratio = partial(typer.Option, rich_help_panel="Step times: typed ratios, in plain decoding steps")
_source = partial(typer.Option, rich_help_panel="Source: a serving engine's output")
_typed = partial(typer.Option, rich_help_panel="Typed counts, without a SOURCE")
_output = partial(typer.Option, rich_help_panel="Output")
Text = str | None
K_HELP = r"Draft tokens per step. \[default: 4, one per rate or tree level, or that of --from]"
BATCH_HELP = r"Sequences in the pass. \[default: 1, or what ran in a step of --from]"


def hardware_completion(incomplete: str) -> list[str]:
    """Accelerators that begin like this, for the shell."""
    from specmath.catalogue import hardware_names

    return [name for name in hardware_names() if name.startswith(incomplete)]


def engine_completion(incomplete: str) -> list[str]:
    """Profiles that begin like this, for the shell."""
    from specmath.profile_catalogue import IDEAL_PROFILE, profile_names

    return [name for name in (IDEAL_PROFILE, *profile_names()) if name.startswith(incomplete)]


def model_completion(incomplete: str) -> list[str]:
    """Models that begin like this, for the shell."""
    from specmath.model_catalogue import model_names

    return [name for name in model_names() if name.startswith(incomplete)]


LAWS = ("alpha", "acceptance_length", "accepted_over_drafted", "rates", "beta", "ranks", "alpha_at")
"""Options that name the acceptance law; they exclude each other."""
REFINEMENTS = {"tree_nodes": "ranks", "tree_branching": "ranks", "rates_kind": "rates"}
"""Options that say something about one law only, and that law."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceOptions:
    """How many draft tokens are accepted."""

    from_source: Annotated[
        Text,
        _acceptance(
            "--from",
            metavar="SOURCE",
            help="α of a serving engine: a URL, or a file of metrics, a log, JSON; see `specmath alpha`.",
        ),
    ] = None
    alpha: Annotated[Text, _acceptance(metavar="α", help="Probability that a draft token is accepted.")] = (
        None
    )
    acceptance_length: Annotated[
        Text, _acceptance(metavar="E", help="Mean tokens per step, bonus token included, at this k.")
    ] = None
    accepted_over_drafted: Annotated[
        Text, _acceptance(metavar="RATIO", help="Accepted over drafted tokens at this k; not α.")
    ] = None
    rates: Annotated[Text, _acceptance(metavar=".8/.7/.6", help="Rates by draft position.")] = None
    rates_kind: Annotated[
        Text,
        _acceptance(
            metavar="conditional|survival",
            help="Of --rates: given that all before were accepted, or overall. \\[default: conditional]",
        ),
    ] = None
    beta: Annotated[Text, _acceptance(metavar="a/b", help="Beta(a, b) mixture of α over contexts.")] = None
    ranks: Annotated[
        Text,
        _acceptance(
            metavar=".6/.2/.1", help="Tree draft: probability that the 1st, 2nd, … child is accepted."
        ),
    ] = None
    tree_nodes: Annotated[
        Text, _acceptance(metavar="N", help="With --ranks: the best tree of N drafted nodes, at most k deep.")
    ] = None
    tree_branching: Annotated[
        Text, _acceptance(metavar="4/2/1", help="With --ranks: children of every node, by depth.")
    ] = None
    alpha_at: Annotated[
        Text, _acceptance(metavar="2k=.62,16k=.1", help="α measured at contexts; give --context.")
    ] = None
    match_rate: Annotated[
        Text,
        _acceptance(
            metavar="h", help="Lookup draft: share of steps with a match; the law holds once matched."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What is said beside a serving engine's output."""

    since: Annotated[
        Text, _source(metavar="FILE|URL", help="An earlier scrape of the same metrics, taken off.")
    ] = None
    watch: Annotated[
        Text, _source(metavar="SECONDS", help="Counts of the next SECONDS at a URL; Ctrl-C ends it early.")
    ] = None
    model: Annotated[Text, _source(metavar="NAME", help="The one model meant, as the engine names it.")] = (
        None
    )
    source_engine: Annotated[
        Text, _source(metavar="NAME[@VERSION]", help="The engine, where recognition needs help.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedCounts:
    """Counts copied by hand."""

    drafts: Annotated[Text, _typed(metavar="N", help="Steps that drafted.")] = None
    drafted: Annotated[Text, _typed(metavar="N", help="Draft tokens.")] = None
    accepted: Annotated[
        Text, _typed(metavar="N", help="Accepted draft tokens, the bonus token left out.")
    ] = None
    positions: Annotated[
        Text, _typed(metavar="100/60/30", help="Drafts that accepted at least 1, 2, … tokens.")
    ] = None
    acceptance_length: Annotated[
        Text,
        _typed(metavar="E", help="Mean tokens per step, bonus token included, where counts are missing."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """The accelerator, and how a model is spread over several."""

    hardware: Annotated[
        Text,
        _hardware(
            metavar="NAME",
            help="Accelerator, see `specmath show hardware`. \\[default: h100-sxm]",
            autocompletion=hardware_completion,
        ),
    ] = None
    hardware_file: Annotated[
        Text, _hardware(metavar="FILE", help="YAML that adds or overrides accelerators and profiles.")
    ] = None
    engine: Annotated[
        Text,
        _hardware(
            metavar="NAME[@VERSION]",
            help="Profile of the software: ideal, typical, vllm, sglang, tensorrt-llm, llama.cpp, mlx, "
            "transformers, cpu; lmdeploy and tgi go by typical. `schedule` writes its config. "
            "\\[default: typical]",
            autocompletion=engine_completion,
        ),
    ] = None
    tp: Annotated[Text, _hardware(metavar="N", help="Tensor parallelism of the target.")] = None
    dp: Annotated[Text, _hardware(metavar="N", help="Data-parallel attention: groups of tp devices.")] = None
    ep: Annotated[Text, _hardware(metavar="N", help="Expert parallelism, within tp · dp.")] = None
    pp: Annotated[Text, _hardware(metavar="N", help="Pipeline stages.")] = None
    link: Annotated[
        Text,
        _hardware(metavar="B/s", help="Link between devices, one way, as 450GB/s; else the catalogue's."),
    ] = None
    graph_sizes: Annotated[
        Text, _hardware(metavar="1,2,4,8:512:8", help="Captured tokens per pass; passes are padded to them.")
    ] = None
    dtype: Annotated[
        Text, _hardware(metavar="DTYPE", help="Count both models unquantised in bf16, fp16 or fp32.")
    ] = None
    quantization: Annotated[
        Text,
        _hardware(metavar="FORMAT", help="Layer weights of the target: fp8, int8, int4, nf4, nvfp4, mxfp4."),
    ] = None
    kv_cache_dtype: Annotated[Text, _hardware(metavar="DTYPE", help="KV cache of both models.")] = None


_MODEL = "A catalogue name, hub id, config.json or its folder, - for stdin, 70B or 47B/13B (total/active)."


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """The target and the draft."""

    target: Annotated[
        Text, _hardware(metavar="MODEL", help=f"{_MODEL} \\[default: 70B]", autocompletion=model_completion)
    ] = None
    draft: Annotated[
        list[str] | None,
        _hardware(
            metavar="MODEL[,alpha=.7,k=3,…]",
            help="A model or head as for the target, or a method; repeat it to compare, each with an "
            "acceptance, k, tp and method of its own. \\[default: 1B]",
            autocompletion=model_completion,
        ),
    ] = None
    method: Annotated[
        Text,
        _hardware(
            metavar="eagle3|mtp|ngram|…",
            help="How it drafts: draft-model, pard, eagle, eagle3, mtp, p-eagle, medusa, dflash, dspark, "
            "domino, ngram, suffix, early-exit. Else inferred from the draft; without a draft its head is "
            "derived, or the target's own.",
        ),
    ] = None
    exit_layer: Annotated[
        Text, _hardware(metavar="N", help="Layers that a draft pass of early-exit runs.")
    ] = None
    draft_quantization: Annotated[
        Text, _hardware(metavar="FORMAT", help="Layer weights of the draft: as --quantization.")
    ] = None
    draft_tp: Annotated[
        Text,
        _hardware(metavar="N", help="Tensor parallelism of the draft. \\[default: 1; for heads, as --tp]"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioOptions:
    """Step times without hardware."""

    draft_cost: Annotated[Text, _ratio("--draft-cost", "--c", metavar="c", help="One draft pass.")] = None
    verify_cost: Annotated[
        Text, _ratio(metavar="v", help="The verification pass, a number or 1+.05k. \\[default: 1]")
    ] = None
    overhead: Annotated[Text, _ratio(metavar="o", help="Everything else in a step. \\[default: 0]")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOptions:
    """Measured pairs that correct the step times."""

    measured: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel="Measured",
            metavar="k=3,batch=8,speedup=1.7",
            help="A measured pair, a CSV or JSONL file of runs, or a calibration, FILE.yaml[,temperature=1]; "
            "repeat for several. Also off=3120tok/s@32,on=5180tok/s@32; acceptance-length=E where no option "
            "gives it.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Where the result goes, and in which form."""

    format: Annotated[
        Text,
        _output(
            "--format",
            "-f",
            metavar="table|md|csv|json|latex|html",
            autocompletion=lambda incomplete: [
                name
                for name in ("table", "md", "csv", "json", "latex", "html")
                if name.startswith(incomplete)
            ],
            help="Of stdout, or of -o where its ending does not tell. \\[default: table; md in a pipe]",
        ),
    ] = None
    output: Annotated[
        Text,
        _output(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to FILE, whole or not at all; its ending sets the format (.parquet too).",
        ),
    ] = None
    explain: Annotated[bool, _output("--explain", help="Add all assumptions and the derivation.")] = False
    debug: Annotated[bool, _output("--debug", help="Show the traceback of an error.")] = False


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Spread each parameter of a record type into one option per field of that record."""
    hints = get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters
    records = {name: hints[name] for name in own if dataclasses.is_dataclass(hints[name])}
    parameters: list[inspect.Parameter] = []
    for name, parameter in own.items():
        if name in records:
            parameters += _fields_as_parameters(records[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    def spread(**values: Any) -> None:
        _refuse_empty(values)
        filled = {
            name: record(**{field.name: values.pop(field.name) for field in dataclasses.fields(record)})
            for name, record in records.items()
        }
        command(**values, **filled)

    spread.__name__, spread.__doc__ = command.__name__, command.__doc__
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return spread


def _refuse_empty(values: Mapping[str, Any]) -> None:
    """An option that was given without a value, as from a variable of the shell that is not set."""
    for name, value in values.items():
        if value == "" or (isinstance(value, list) and "" in value):
            raise InputError(name, "a value is missing")


@cache
def _fields_as_parameters(record: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(record, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(record)
    ]
