"""From the text of options to the records of the library: acceptance laws and step-time sources.

Start-up is a feature: what one law alone needs is imported by the reader of that law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from specmath.accelerator import Accelerator
from specmath.acceptance import BetaAcceptance, ConstantAcceptance, PositionAcceptance
from specmath.acceptance_axis import AcceptanceAxis
from specmath.axes import parse_axis, parse_linear, parse_record, parse_vector
from specmath.catalogue import load_hardware
from specmath.checks import require_count, require_range
from specmath.cli.options import (
    LAWS,
    REFINEMENTS,
    AcceptanceOptions,
    DeviceOptions,
    PairOptions,
    RatioOptions,
)
from specmath.errors import InputError
from specmath.execution import IDEAL, Efficiency, Layout
from specmath.laws import AcceptanceLaw
from specmath.model import ModelShape
from specmath.model_counts import looks_like_counts, model_from_counts
from specmath.roofline_source import Roofline, roofline_cases
from specmath.sources import Ratios, StepTimeSource
from specmath.units import parse_quantity

DEFAULT_HARDWARE, DEFAULT_TARGET, DEFAULT_DRAFT = "h100-sxm", "70B", "1B"

_OPTION_OF = {
    "kv_dtype": "kv_cache_dtype",
    "a": "beta",
    "b": "beta",
    "branching": "tree_branching",
    "contexts": "alpha_at",
    "depth_limit": "k",
    "nodes": "tree_nodes",
    "path": "output",
}
"""Option behind a parameter of the library, where the two names differ."""


def parameter(name: str) -> str:
    """The command line's name of a parameter of the library."""
    return _OPTION_OF.get(name, name)


def option(name: str) -> str:
    """The option that sets a parameter of the library: `--draft-cost` for `draft_cost`."""
    return "--" + parameter(name).replace("_", "-")


def given_or(value: str | None, default: str) -> str:
    """What was typed, an empty text too, else the default."""
    return default if value is None else value


def draft_lengths(k: str | None, acceptance: AcceptanceOptions) -> list[int]:
    """The draft lengths typed; by default as many as there are rates or levels of a tree, else 4."""
    for name in ("rates", "tree_branching"):
        vector = getattr(acceptance, name)
        if k is None and vector is not None and "," not in vector:
            return [len(parse_vector(name, vector))]
    return parse_axis("k", given_or(k, "4"), whole=True)


def only_one(given: dict[str, str | None], wanted: str) -> str:
    """The one option that was given; an error that names them otherwise."""
    named = [name for name, value in given.items() if value is not None]
    if len(named) == 1:
        return named[0]
    options = ", ".join(option(name) for name in (named or given))
    if not named:
        raise InputError(next(iter(given)), f"give {wanted}: one of {options}")
    raise InputError(named[0], f"{options} exclude each other; give one")


def acceptance_laws(options: AcceptanceOptions, k: list[int]) -> list[AcceptanceLaw]:
    """The laws that the acceptance options name, in the order typed."""
    wanted = "an acceptance" if options.match_rate is None else "the law that holds once a match is found"
    kind = only_one({name: getattr(options, name) for name in LAWS}, wanted)
    _refuse_strays(options, kind)
    laws = _LAW_READERS[kind](getattr(options, kind), options, k)
    if options.match_rate is None:
        return laws
    from specmath.mixtures import LookupAcceptance

    matched = AcceptanceAxis.of(laws)
    return [LookupAcceptance(match_rate(options), matched.law(i)) for i in range(len(matched))]


def match_rate(options: AcceptanceOptions) -> float:
    """Share of steps in which a lookup draft finds a match; 1 where none is given."""
    return 1.0 if options.match_rate is None else parse_number("match_rate", options.match_rate)


def step_time_cases(
    acceptance: AcceptanceOptions, device: DeviceOptions, pair: PairOptions, ratios: RatioOptions
) -> tuple[StepTimeSource, ...]:
    """Typed ratios as one case, or the three cases of the roofline."""
    if not _given(ratios):
        return roofline(acceptance, device, pair)
    if strays := _given(device) + _given(pair):
        raise InputError(strays[0], f"excludes {option(_given(ratios)[0])}; give ratios or hardware")
    if ratios.draft_cost is None and acceptance.match_rate is None:
        raise InputError("draft_cost", "is missing; with typed ratios give the cost of one draft pass")
    verify_cost, verify_slope = parse_linear("verify_cost", given_or(ratios.verify_cost, "1"))
    source = Ratios(
        draft_cost=parse_number("draft_cost", given_or(ratios.draft_cost, "0")),
        verify_cost=verify_cost,
        verify_slope=verify_slope,
        overhead=parse_number("overhead", given_or(ratios.overhead, "0")),
        match_rate=match_rate(acceptance),
    )
    return (source,)


def chosen_cases(cases: tuple[StepTimeSource, ...], text: str | None) -> tuple[StepTimeSource, ...]:
    """The cases named, in the order of the table."""
    if text is None:
        return cases
    known = [source.case for source in cases]
    named = [name.strip() for name in text.split(",")]
    if strange := [name for name in named if name not in known]:
        raise InputError("case", f"{strange[0]!r} is none of {', '.join(known)}")
    return tuple(source for source in cases if source.case in named)


def roofline(
    acceptance: AcceptanceOptions, device: DeviceOptions, pair: PairOptions
) -> tuple[Roofline, Roofline, Roofline]:
    """The ideal, memory-bound and compute-bound case of the model pair on the accelerator."""
    lookup = acceptance.match_rate is not None
    if pair.target == pair.draft == "-":
        raise InputError("draft", "- is taken by the target; stdin can be read once")
    if lookup and pair.draft is not None:
        raise InputError("draft", "excludes --match-rate: a lookup draft runs no model")
    target = model("target", given_or(pair.target, DEFAULT_TARGET), device)
    if not lookup and pair.draft is None and not target.counts_only:
        raise InputError("draft", f"is missing: name the draft of {target.name}, or give --match-rate")
    draft = None if lookup else model("draft", given_or(pair.draft, DEFAULT_DRAFT), device)
    return roofline_cases(
        accelerator(device),
        target,
        draft,
        layout=layout(device),
        draft_layout=Layout(tp=_degree("draft_tp", pair.draft_tp)),
        efficiency=efficiency(device),
        link_bytes_per_s=link(device),
        match_rate=match_rate(acceptance),
    )


def accelerator(device: DeviceOptions) -> Accelerator:
    """The accelerator of the options."""
    return load_hardware(given_or(device.hardware, DEFAULT_HARDWARE), hardware_file=device.hardware_file)


def layout(device: DeviceOptions) -> Layout:
    """How the options spread the target."""
    return Layout(**{name: _degree(name, getattr(device, name)) for name in ("tp", "dp", "ep", "pp")})


def efficiency(device: DeviceOptions) -> Efficiency:
    """The ideal, padded to the captured sizes if there are any."""
    if device.graph_sizes is None:
        return IDEAL
    return Efficiency(graph_sizes=tuple(parse_axis("graph_sizes", device.graph_sizes, whole=True)))


def link(device: DeviceOptions) -> float | None:
    """The link that was typed, in bytes per second; None for the catalogue's."""
    return None if device.link is None else parse_quantity("link", device.link, "B/s")


def model(role: str, text: str, device: DeviceOptions) -> ModelShape:
    """The model that the text names, in the dtypes that the options ask for; only a target is quantised."""
    try:
        shape = _named_model(text)
        if device.dtype is not None:
            shape = shape.with_dtype(device.dtype)
        if device.quantization is not None and role == "target":
            shape = shape.with_quantization(device.quantization)
        if device.kv_cache_dtype is not None:
            shape = shape.with_kv_cache_dtype(device.kv_cache_dtype)
    except InputError as error:
        raise InputError(
            {"total_params": role, "active_params": role}.get(error.name, error.name), error.problem
        ) from error
    return shape


def _named_model(text: str) -> ModelShape:
    if looks_like_counts(text):
        return model_from_counts(text)
    if text == "-":
        from specmath.hf.document import read_stdin
        from specmath.hf.reader import read_config

        return read_config(read_stdin(), "stdin", name="stdin")
    from specmath.model_catalogue import load_model

    return load_model(text)


def _degree(name: str, text: str | None) -> int:
    return 1 if text is None else parse_count(name, text)


def refuse_ratios(ratios: RatioOptions, question: str) -> None:
    """Typed ratios hold at one unknown batch, so no question over batches can be asked of them."""
    if given := _given(ratios):
        problem = f"typed ratios know no batch; {question} needs --hardware, --target and --draft"
        raise InputError(given[0], problem)


def parse_number(name: str, text: str) -> float:
    """One number; a list or range is an error that names the option."""
    values = parse_axis(name, text)
    if len(values) != 1:
        raise InputError(name, f"takes one value, got {text!r}")
    return float(values[0])


def parse_count(name: str, text: str) -> int:
    """One whole number; a list or range is an error that names the option."""
    values = parse_axis(name, text, whole=True)
    if len(values) != 1:
        raise InputError(name, f"takes one value, got {text!r}")
    return values[0]


def _given(options: DeviceOptions | PairOptions | RatioOptions) -> list[str]:
    return [field.name for field in fields(options) if getattr(options, field.name) is not None]


def _refuse_strays(options: AcceptanceOptions, kind: str) -> None:
    """Options that refine one law say nothing about another."""
    for name, law in REFINEMENTS.items():
        if kind != law and getattr(options, name) is not None:
            raise InputError(name, f"belongs to {option(law)}, which was not given")


def _single(k: list[int]) -> int:
    if len(k) != 1:
        raise InputError("k", "must be the one k of the measurement; for several give --alpha or --rates")
    return k[0]


def _constant(text: str, options: AcceptanceOptions, k: list[int]) -> list[AcceptanceLaw]:
    return [ConstantAcceptance(np.array(parse_axis("alpha", text)))]


def _from_length(text: str, options: AcceptanceOptions, k: list[int]) -> list[AcceptanceLaw]:
    from specmath.estimation import alpha_from_acceptance_length

    lengths = parse_axis("acceptance_length", text)
    return [ConstantAcceptance(alpha_from_acceptance_length(lengths, _single(k)))]


def _from_ratio(text: str, options: AcceptanceOptions, k: list[int]) -> list[AcceptanceLaw]:
    from specmath.estimation import alpha_from_accepted_over_drafted

    ratios = parse_axis("accepted_over_drafted", text)
    return [ConstantAcceptance(alpha_from_accepted_over_drafted(ratios, _single(k)))]


def _positions(text: str, options: AcceptanceOptions, k: list[int]) -> list[AcceptanceLaw]:
    kind: Any = given_or(options.rates_kind, "conditional")
    if kind not in ("conditional", "survival"):
        raise InputError("rates_kind", f"must be conditional or survival, got {kind!r}")
    return [PositionAcceptance(parse_vector("rates", rates), kind=kind) for rates in text.split(",")]


def _beta(text: str, options: AcceptanceOptions, k: list[int]) -> list[AcceptanceLaw]:
    pairs = [parse_vector("beta", pair) for pair in text.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise InputError("beta", f"{text!r}: give two numbers, as in 5.6/2.3")
    return [BetaAcceptance(a, b) for a, b in pairs]


def _tree(text: str, options: AcceptanceOptions, k: list[int]) -> list[AcceptanceLaw]:
    from specmath.best_trees import BestTree
    from specmath.trees import uniform_tree

    ranks = parse_vector("ranks", text)
    shape = only_one(
        {"tree_nodes": options.tree_nodes, "tree_branching": options.tree_branching}, "the shape of the tree"
    )
    if shape == "tree_nodes":
        sizes = parse_axis("tree_nodes", options.tree_nodes or "", whole=True)
        return [BestTree(ranks, nodes) for nodes in sizes]
    branching = require_count("branching", parse_vector("branching", options.tree_branching or ""), 1)
    return [uniform_tree(ranks, branching.tolist())]


def _by_context(text: str, options: AcceptanceOptions, k: list[int]) -> list[AcceptanceLaw]:
    from specmath.mixtures import ContextAcceptance

    points = [
        (parse_quantity("alpha_at", context), _alpha_law("alpha_at", alpha))
        for context, alpha in parse_record("alpha_at", text).items()
    ]
    contexts, laws = zip(*points, strict=True)
    return [ContextAcceptance(contexts, laws)]


def _alpha_law(name: str, text: str) -> ConstantAcceptance:
    return ConstantAcceptance(float(require_range(name, parse_number(name, text), 0, 1)))


_LAW_READERS: dict[str, Callable[[str, AcceptanceOptions, list[int]], list[AcceptanceLaw]]] = {
    "alpha": _constant,
    "acceptance_length": _from_length,
    "accepted_over_drafted": _from_ratio,
    "rates": _positions,
    "beta": _beta,
    "ranks": _tree,
    "alpha_at": _by_context,
}
