"""What a calibration found in words: one row of acceptance, and a law with its constants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specmath.calibrations import AcceptanceRow, PartFit
from specmath.checks import FloatArray
from specmath.units import format_quantity, format_significant


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
