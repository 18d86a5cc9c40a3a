"""Laws of passes, drawn from measured cells: the constants, how far each is known, and what the law misses.

    target   w + τ·t + κ·KV·(1 + ρ·(q − 1)) + x·U(t)/N,  or with a corner  f + (w^s + (τ·t)^s)^(1/s) + …
    draft    k·(d0 + d1·B + κ_d·B·C) + r
    host     h0 + h1·B + h2·B·q

with t = B·q and KV = B·C. Every constant is at least 0. With κ·(1 − ρ) and κ·ρ in place of κ and ρ the first
law is linear too, and 0 ≤ ρ ≤ 1 says that both are at least 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specmath.calibrations import IDENTIFIED_SHARE, Cell, FittedConstant, PartFit
from specmath.checks import FloatArray
from specmath.fitting import (
    BoolArray,
    RobustFit,
    Solver,
    least_squares,
    left_out,
    linear_solver,
    robust_fit,
)
from specmath.pass_columns import CornerSolver, Sizes, Terms, corner_height
from specmath.pass_flags import cell_flags, judged_cells
from specmath.pass_laws import DraftLaw, HostLaw, PassLaw

GAIN = 0.9
"""The form with a corner must bring the left-out errors below this share of the plain sum's."""
FEWEST_TOKENS = 6
"""Different numbers of tokens from which on a corner, which has two constants more, can be told."""
SWITCHED = 4.0
"""Standard deviations by which passes of one token must miss the law to have a time of their own."""
SPREAD_OF_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean where the noise is normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """A fit, the names of its coefficients, and the errors of each cell left out with its like."""

    names: tuple[str, ...]
    fit: RobustFit
    left_out_errors: FloatArray
    sharpness: float = 1.0

    def value(self, name: str) -> float:
        """One coefficient; 0 where this form has none of the name."""
        return float(self.fit.coefficients[self.names.index(name)]) if name in self.names else 0.0

    def shares(self, name: str) -> FloatArray:
        """Share of each fitted time that the term of this coefficient makes up."""
        if name not in self.names:
            return np.zeros(len(self.fit.errors))
        place = self.names.index(name)
        return np.asarray(self.fit.rows[:, place] * self.fit.coefficients[place] / (1 + self.fit.errors))

    def standard_error(self, **slopes: float) -> float | None:
        """Of a sum of coefficients, each times its slope; None where all of them are held at 0."""
        gradient = np.array([slopes.get(name, 0.0) for name in self.names])
        if not any(self.value(name) > 0 or name == "sharpness" for name in slopes):
            return None
        variance = float(gradient @ self.fit.covariance @ gradient)
        return math.sqrt(variance) if variance > 0 else None

    def constant(self, name: str) -> FittedConstant:
        """The constant that is this coefficient alone."""
        error, share = self.standard_error(**{name: 1.0}), float(self.shares(name).max())
        return FittedConstant(name=name, value=self.value(name), standard_error=error, largest_share=share)

    @property
    def typical_miss(self) -> float:
        """Mean of the smaller nine tenths of the left-out errors, so that outliers choose no form."""
        errors = np.sort(np.abs(self.left_out_errors))  # NaN, where nothing is predicted, comes last
        return float(np.mean(errors[: math.ceil(0.9 * errors.size)]))


def fitted_pass_law(
    cells: Sequence[Cell], *, expert_counts: tuple[int, int] | None = None
) -> tuple[PassLaw, PartFit]:
    """The law of the target's pass, from the cells of part `target`.

    Takes the plain sum, unless a corner brings the typical left-out error below `GAIN` of its own. Passes of
    one token get a time of their own where they miss the law of all others by more than `SWITCHED` standard
    deviations. ρ is 0 where the cache, read as often as it may be, nowhere takes a tenth of the time.

    Args:
        cells: Measured; those of other parts are passed over.
        expert_counts: N routed experts of a layer and K that a token visits; None for a dense model.

    Returns:
        The law, and how it was drawn. The left-out error of a single token with a time of its own is NaN.

    Raises:
        InputError: where no cell is of part `target`, or one takes no time.
    """
    sizes = Sizes.of(cells, "target")
    terms = Terms(expert_counts=expert_counts)
    lawful, single = sizes.tokens > 1, None
    if lawful.any() and not lawful.all():
        drawn = _chosen(sizes.at(lawful), terms)
        single = _single_token(_pass_law(drawn, terms), drawn.fit.scale, sizes.at(~lawful))
    if single is None:
        lawful = np.ones(len(lawful), dtype=bool)
        drawn = _chosen(sizes, terms)
    law, constants = _pass_law(drawn, terms), _pass_constants(drawn, sizes.at(lawful))
    if single is not None:
        law, constants = replace(law, single_token_s=single.value), (*constants, single)
    predicted_s = np.asarray(law.pass_s(sizes.batch, sizes.width, sizes.context))
    return law, _part_fit("target", cells, constants, drawn, predicted_s / sizes.seconds - 1, lawful)


def fitted_draft_law(cells: Sequence[Cell]) -> tuple[DraftLaw, PartFit]:
    """The law of drafting, from the cells of part `draft`, whose width is k.

    Raises:
        InputError: where no cell is of part `draft`, or one takes no time.
    """
    sizes = Sizes.of(cells, "draft")
    columns = {
        "fixed_s": sizes.width,
        "s_per_sequence": sizes.tokens,
        "kv_s_per_token": sizes.width * sizes.cached,
        "round_s": np.ones(len(sizes.width)),
    }
    drawn = _drawn_sum(columns, sizes)
    return DraftLaw(**{name: drawn.value(name) for name in columns}), _sum_fit("draft", cells, drawn)


def fitted_host_law(cells: Sequence[Cell], part: str) -> tuple[HostLaw, PartFit]:
    """The law of the host in a plain or a speculative step, from the cells of that part.

    Args:
        cells: Measured; those of other parts are passed over.
        part: `plain-host` or `step-host`.

    Raises:
        InputError: where no cell is of this part, or one takes no time.
    """
    sizes = Sizes.of(cells, part)
    columns = {
        "fixed_s": np.ones(len(sizes.width)),
        "s_per_sequence": sizes.batch,
        "s_per_token": sizes.tokens,
    }
    drawn = _drawn_sum(columns, sizes)
    return HostLaw(**{name: drawn.value(name) for name in columns}), _sum_fit(part, cells, drawn)


def _drawn(names: Sequence[str], solver: Solver, signed: BoolArray, sizes: Sizes) -> _Drawn:
    fit = robust_fit(solver, len(sizes.seconds), signed)
    used = fit.rows.any(axis=0)  # a sharpness at its bound has no slope
    rows = fit.rows[:, used]

    def predicted(others: BoolArray) -> FloatArray:
        weights, ones = fit.weights[others], np.ones(int(others.sum()))
        return np.asarray(rows @ least_squares(rows[others], ones, weights=weights, signed=signed[used]))

    sharpness = solver.sharpness if isinstance(solver, CornerSolver) else 1.0
    said = left_out(sizes.alike, predicted)
    errors = np.where(said > 0, said, np.nan) - 1  # a fit to no cell at all says 0, which predicts nothing
    return _Drawn(names=tuple(names), fit=fit, left_out_errors=errors, sharpness=sharpness)


def _drawn_sum(columns: Mapping[str, FloatArray], sizes: Sizes) -> _Drawn:
    signed = np.zeros(len(columns), dtype=bool)
    solver = linear_solver(np.stack(list(columns.values()), axis=-1), sizes.seconds, signed)
    return _drawn(tuple(columns), solver, signed, sizes)


def _chosen(sizes: Sizes, terms: Terms) -> _Drawn:
    """The better form; without re-reading where the cache takes too little time to tell."""
    drawn = _better_form(sizes, terms)
    in_all = drawn.shares("kv_once") + drawn.shares("kv_each")
    if terms.rereads and in_all.max() < IDENTIFIED_SHARE:
        return _better_form(sizes, replace(terms, rereads=False))
    return drawn


def _better_form(sizes: Sizes, terms: Terms) -> _Drawn:
    plain = _drawn_sum(terms.sum_columns(sizes), sizes)
    if np.unique(sizes.tokens).size < FEWEST_TOKENS:
        return plain
    solver = CornerSolver(sizes, terms)
    corner = _drawn(solver.names, solver, solver.signed, sizes)
    is_corner = corner.value("weights_s") > 0 and corner.value("compute_s_per_token") > 0
    return corner if is_corner and corner.typical_miss < GAIN * plain.typical_miss - 1e-9 else plain


def _cache_shares(drawn: _Drawn, sizes: Sizes) -> FloatArray:
    """Share of κ·KV, the cache read once, in each fitted time."""
    return drawn.shares("kv_once") + drawn.shares("kv_each") / sizes.width


def _single_token(law: PassLaw, scale: float, lone: Sizes) -> FittedConstant | None:
    """The time of a pass of one token where the law of all others misses it; else None."""
    ratios = np.asarray(law.pass_s(lone.batch, lone.width, lone.context)) / lone.seconds
    if abs(float(np.median(ratios)) - 1) <= SWITCHED * scale:
        return None
    seconds = lone.seconds - law.kv_s_per_token * lone.cached
    value = float(np.median(seconds))
    error = SPREAD_OF_MEDIAN * scale * float(np.median(lone.seconds)) / math.sqrt(seconds.size)
    share = float(np.max(value / lone.seconds))
    return FittedConstant(name="single_token_s", value=value, standard_error=error, largest_share=share)


def _pass_law(drawn: _Drawn, terms: Terms) -> PassLaw:
    once, each = drawn.value("kv_once"), drawn.value("kv_each")
    return PassLaw(
        weights_s=drawn.value("weights_s"),
        compute_s_per_token=drawn.value("compute_s_per_token"),
        kv_s_per_token=once + each,
        kv_reread=each / (once + each) if each > 0 else 0.0,
        fixed_s=drawn.value("fixed_s"),
        sharpness=drawn.sharpness,
        experts_s=drawn.value("experts_s"),
        expert_counts=terms.expert_counts,
    )


def _pass_constants(drawn: _Drawn, sizes: Sizes) -> tuple[FittedConstant, ...]:
    names = ("weights_s", "compute_s_per_token", "fixed_s", "experts_s")
    alone = [drawn.constant(name) for name in names if name in drawn.names]
    return (*alone, *_cache_constants(drawn, sizes), *_sharpness_constant(drawn, sizes))


def _cache_constants(drawn: _Drawn, sizes: Sizes) -> tuple[FittedConstant, ...]:
    """κ and ρ, from κ·(1 − ρ) and κ·ρ."""
    if "kv_once" not in drawn.names:
        return ()
    once, each = drawn.value("kv_once"), drawn.value("kv_each")
    kv_s = once + each
    reread = each / kv_s if kv_s > 0 else 0.0
    reread_error = drawn.standard_error(kv_once=-reread / kv_s, kv_each=(1 - reread) / kv_s) if kv_s else None
    rereads = drawn.shares("kv_each") * (1 - 1 / sizes.width)
    return (
        FittedConstant(
            name="kv_s_per_token",
            value=kv_s,
            standard_error=drawn.standard_error(kv_once=1.0, kv_each=1.0),
            largest_share=float(_cache_shares(drawn, sizes).max()),
        ),
        FittedConstant(
            name="kv_reread",
            value=reread,
            standard_error=reread_error if 0 < reread < 1 else None,
            largest_share=float(rereads.max()),
        ),
    )


def _sharpness_constant(drawn: _Drawn, sizes: Sizes) -> tuple[FittedConstant, ...]:
    """s, whose term is what the corner lies above the larger of its two sides."""
    if "sharpness" not in drawn.names:
        return ()
    sharpness, tokens = drawn.sharpness, sizes.tokens
    corner = drawn.value("weights_s") / drawn.value("compute_s_per_token")
    edge = drawn.shares("weights_s") + drawn.shares("compute_s_per_token")
    rounding = edge * (1 - np.maximum(tokens, corner) / corner_height(tokens, sharpness, corner))
    error = drawn.standard_error(sharpness=1.0)
    share = float(rounding.max())
    return (FittedConstant(name="sharpness", value=sharpness, standard_error=error, largest_share=share),)


def _sum_fit(part: str, cells: Sequence[Cell], drawn: _Drawn) -> PartFit:
    constants = tuple(drawn.constant(name) for name in drawn.names)
    lawful = np.ones(len(drawn.fit.errors), dtype=bool)
    return _part_fit(part, cells, constants, drawn, drawn.fit.errors, lawful)


def _part_fit(
    part: str,
    cells: Sequence[Cell],
    constants: tuple[FittedConstant, ...],
    drawn: _Drawn,
    errors: FloatArray,
    lawful: BoolArray,
) -> PartFit:
    """The record; cells that are not lawful have a time of their own and were not in the fit."""
    left_out_errors, given_up = np.full(lawful.size, np.nan), np.zeros(lawful.size, dtype=bool)
    left_out_errors[lawful] = drawn.left_out_errors
    given_up[lawful] = drawn.fit.weights == 0
    chosen = [cell for cell in cells if cell.place.part == part]
    judged = judged_cells(chosen, errors.tolist(), given_up.tolist())
    return PartFit(
        part=part,
        constants=constants,
        errors=tuple(errors.tolist()),
        left_out_errors=tuple(left_out_errors.tolist()),
        flags=cell_flags(judged),
    )
