"""What a calibration found in words: one row of acceptance, and a law with its constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from specmath.calibrations import AcceptanceRow, PartFit, ProofRow, RunLine
from specmath.checks import FloatArray
from specmath.measurements import context_text
from specmath.results import Cell
from specmath.units import format_quantity, format_significant

_SET_UP: Final = ("hardware", "engine", "target", "method", "draft")


def accepted_text(row: AcceptanceRow) -> str:
    """One row of acceptance as a sentence."""
    top_p = "" if row.top_p == 1 else f", top-p {row.top_p:g}"
    where = "" if row.domain == "all" else f", {row.domain}"
    where += "" if row.context is None else f", near context {row.context:,.0f}"
    lossy = "" if row.lossless else " (lossy)"
    parts = []
    if row.alpha is not None:
        ends = "" if row.alpha_low is None else f" ({row.alpha_low:.3f}–{row.alpha_high:.3f})"
        parts.append(f"α {row.alpha:.3f}{ends} over {row.positions:,} positions of {row.requests} texts")
    if row.accepted_at:
        positions = "/".join(f"{share:.3f}" for share in row.survival)
        matched = "" if row.match_rate == 1 else f"a match in {row.match_rate:.0%} of the steps, "
        parts.append(
            f"decoded with k = {row.k}: {matched}E {row.acceptance_length:.3f}, survival {positions}"
        )
    return f"acceptance by {row.rule}{lossy} at T = {row.temperature:g}{top_p}{where}: {'; '.join(parts)}"


def acceptance_lines(rows: Sequence[AcceptanceRow]) -> Iterator[str]:
    """Acceptances as a table of their own: rule, way of sampling, domain, α with its interval, E."""
    table: list[tuple[str, ...]] = [
        ("rule", "T", "top-p", "domain", "context", "α", "95 % interval", "texts", "k", "E")
    ]
    table += [_acceptance_cells(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table if rows else ():
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _acceptance_cells(row: AcceptanceRow) -> tuple[str, ...]:
    length = row.acceptance_length
    return (
        row.rule + ("" if row.lossless else " (lossy)"),
        f"{row.temperature:g}",
        f"{row.top_p:g}",
        row.domain,
        "all" if row.context is None else f"{row.context:,.0f}",
        "–" if row.alpha is None else f"{row.alpha:.3f}",
        "–" if row.alpha_low is None else f"{row.alpha_low:.3f}–{row.alpha_high:.3f}",
        f"{row.requests:,}",
        "–" if row.k is None else f"{row.k}",
        "–" if length is None else f"{length:.3f}",
    )


def fit_lines(fit: PartFit) -> Iterator[str]:
    """The constants of a law with their errors, and how well it holds."""
    for constant in fit.constants:
        unit = "s" if constant.name.endswith(("_s", "_per_token", "_per_sequence")) else ""
        value = format_quantity(constant.value, unit) if unit else format_significant(constant.value)
        error = constant.standard_error
        spread = f" ± {error / constant.value:.1%}" if error and constant.value else ""
        known = "" if constant.is_identified else ", not identified"
        yield f"{fit.part}: {constant.name} = {value}{spread}, {constant.largest_share:.0%} at most{known}"
    errors, left_out = np.abs(fit.errors), np.abs(fit.left_out_errors)
    left_out = left_out[np.isfinite(left_out)]
    if errors.size:
        told = f"{fit.part}: the law misses its {errors.size} cells by {_missed(errors)}"
        yield told + (f"; cells left out: {_missed(left_out)}" if left_out.size else "")
    for flag in fit.flags:
        place = flag.place
        width = f"{place.width} {'passes' if place.part == 'draft' else 'tokens'}"
        where = f"batch {place.batch}, {width}, context {place.context:,}"
        yield f"{fit.part}: {flag.kind} at {where}, {flag.ratio:.2f} times"


def _missed(errors: FloatArray) -> str:
    return f"{np.median(errors):.1%} (median) and {errors.max():.1%} (worst)"


def proof_remarks(proof: Sequence[ProofRow], decoded: Sequence[AcceptanceRow]) -> Iterator[str]:
    """Why columns of a proof are empty in some rows, and why two speed-ups differ; none without a proof."""
    ways = {(row.temperature, row.top_p) for row in proof}
    if not proof or not decoded:
        return
    if {(row.temperature, row.top_p) for row in decoded} - ways:
        proved = " and ".join(way_text(*way) for way in sorted(ways))
        yield (
            f"the proof ran at {proved} alone, as it is the time of a step that is proved: rows of other "
            "sampling have no measured, predicted and error"
        )
    yield (
        "speed-up takes E of the acceptance run; measured and predicted take E of the proof's own run, so "
        "that error is that of the step times alone"
    )


def way_text(temperature: Cell, top_p: Cell) -> str:
    """A way of sampling."""
    return f"T = {temperature:g}" + ("" if top_p == 1 else f", top-p {top_p:g}")


def place_text(row: ProofRow) -> str:
    """Where a proof was run."""
    return f"batch {row.batch}, k {row.k}, context {row.context:g}"


def line_text(line: RunLine) -> str:
    """A line over k as a sentence."""
    left = "" if line.worst_left_out is None else f", {line.worst_left_out:.1%} with that k left out"
    return (
        f"batch {line.batch:g}, context {context_text(line.context)}: E·TPOT = {line_seconds_text(line)}, "
        f"{line.worst_error:.1%} off at worst{left}"
    )


def line_seconds_text(line: RunLine) -> str:
    """The step of a line, by k."""
    return f"{format_quantity(line.intercept_s, 's')} + {format_quantity(line.slope_s, 's')}·k"


def set_up_options(machine: Mapping[str, str | float | int]) -> str:
    """The options that name what ran, as far as it is told; stand-ins for models that are not.

    >>> set_up_options({"engine": "vllm", "load": 0.5})
    ' --engine vllm --target MODEL --draft MODEL'
    """
    told = "".join(f" --{name} {machine[name]}" for name in _SET_UP if name in machine)
    return told if "target" in machine else f"{told} --target MODEL --draft MODEL"


def span_text(values: Sequence[float]) -> str:
    """From the smallest to the largest, in one figure where they print alike.

    >>> span_text([1.1, 1.2]), span_text([1.1])
    ('1.100 to 1.200', '1.100')
    """
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low} to {high}"
