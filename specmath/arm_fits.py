"""What weeks of metrics tell of the step of one arm: a record of the regression on the load."""

from __future__ import annotations

from dataclasses import dataclass

from specmath.units import format_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFit:
    """The step of one arm over weeks of varying load.

        step = fixed_s + s_per_request·running + s_per_prefill_token·prefill

    Attributes:
        k: Draft tokens per step; None without speculation.
        acceptance_length: E over all intervals; 1 without speculation.
        intervals: Parts of time that it was drawn from.
        running_low: Requests in a step, the fifth percentile of the intervals.
        running_high: The ninety-fifth.
        prefill: Prompt tokens computed in a step, the median of the intervals.
        fixed_s: What no load changes.
        s_per_request: What a running request adds.
        s_per_prefill_token: What a prompt token computed beside them adds.
        fixed_error_s: Standard error of `fixed_s`; None where it is held at 0. So are the next two.
        error_per_request: Of `s_per_request`.
        error_per_prefill_token: Of `s_per_prefill_token`.
        error: Median relative error of the fit at an interval, without its sign.
        left_out_error: The same with a tenth of the time around it left out.
    """

    k: int | None = None
    acceptance_length: float
    intervals: int
    running_low: float
    running_high: float
    prefill: float
    fixed_s: float
    s_per_request: float
    s_per_prefill_token: float
    fixed_error_s: float | None = None
    error_per_request: float | None = None
    error_per_prefill_token: float | None = None
    error: float
    left_out_error: float

    @property
    def text(self) -> str:
        """The step in one sentence, each constant with its standard error."""
        arm = (
            "a plain step"
            if self.k is None
            else f"a step with k = {self.k}, E = {self.acceptance_length:.3g}"
        )
        fixed = _told(self.fixed_s, self.fixed_error_s)
        request = _told(self.s_per_request, self.error_per_request)
        token = _told(self.s_per_prefill_token, self.error_per_prefill_token)
        return (
            f"{arm} takes {fixed}, {request} per running request and {token} per prefilled token; from "
            f"{self.intervals} intervals at {self.running_low:.3g} to {self.running_high:.3g} running, which "
            f"it misses by {self.left_out_error:.1%} left out"
        )


def _told(seconds: float, error: float | None) -> str:
    beside = "" if error is None else f" (±{format_quantity(error, 's')})"
    return f"{format_quantity(seconds, 's')}{beside}"
