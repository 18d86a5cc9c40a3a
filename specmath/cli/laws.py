"""From the acceptance options to acceptance laws.

Start-up is a feature: what one law alone needs is imported by the reader of that law.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from specmath.acceptance import BetaAcceptance, ConstantAcceptance, PositionAcceptance
from specmath.acceptance_axis import AcceptanceAxis
from specmath.axes import parse_axis, parse_record, parse_vector
from specmath.checks import require_count, require_range
from specmath.cli.options import LAWS, REFINEMENTS, AcceptanceOptions
from specmath.cli.text import given_or, only_one, option, parse_number
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.units import parse_quantity


def draft_lengths(k: str | None, acceptance: AcceptanceOptions) -> list[int]:
    """The draft lengths typed; by default as many as there are rates or levels of a tree, else 4."""
    for name in ("rates", "tree_branching"):
        vector = getattr(acceptance, name)
        if k is None and vector is not None and "," not in vector:
            return [len(parse_vector(name, vector))]
    return parse_axis("k", given_or(k, "4"), whole=True)


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
