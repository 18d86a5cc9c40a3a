"""Options that several commands share, as records, and the decorator that spreads them into a command line.

A command declares `acceptance: AcceptanceOptions`; `with_options` gives typer one option per field of the
record and hands the command the filled record. Options stay text here: what they mean is decided in
`specmath.cli.inputs`, so that `--help` imports neither numpy nor yaml.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, get_type_hints

import typer

_acceptance = partial(typer.Option, rich_help_panel="Acceptance: one law")
_hardware = partial(typer.Option, rich_help_panel="Step times: hardware and models")
_ratio = partial(typer.Option, rich_help_panel="Step times: typed ratios, in plain decoding steps")
_output = partial(typer.Option, rich_help_panel="Output")
Text = str | None


LAWS = ("alpha", "acceptance_length", "accepted_over_drafted", "rates", "beta", "ranks", "alpha_at")
"""Options that name the acceptance law; they exclude each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceOptions:
    """How many draft tokens are accepted."""

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
class HardwareOptions:
    """What runs on what."""

    hardware: Annotated[
        Text,
        _hardware(metavar="NAME", help="Accelerator, see `specmath show hardware`. \\[default: h100-sxm]"),
    ] = None
    hardware_file: Annotated[
        Text, _hardware(metavar="FILE", help="YAML that adds or overrides accelerators.")
    ] = None
    target: Annotated[
        Text, _hardware(metavar="COUNT", help="Parameters, 70B or 47B/13B (total/active). \\[default: 70B]")
    ] = None
    draft: Annotated[Text, _hardware(metavar="COUNT", help="Parameters of the draft. \\[default: 1B]")] = None
    dtype: Annotated[
        Text, _hardware(metavar="DTYPE", help="Of the weights and products of both. \\[default: bf16]")
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
class OutputOptions:
    """Where the result goes, and in which form."""

    format: Annotated[
        Text,
        _output(
            "--format",
            "-f",
            metavar="table|md|csv|json|latex|html",
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
        filled = {
            name: record(**{field.name: values.pop(field.name) for field in dataclasses.fields(record)})
            for name, record in records.items()
        }
        command(**values, **filled)

    spread.__name__, spread.__doc__ = command.__name__, command.__doc__
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return spread


@cache
def _fields_as_parameters(record: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(record, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(record)
    ]
