"""One calibration from end to end: passes, laws, acceptance, proof. What stands is kept as it stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from calibrate.findings import Watch, longest_text, read_back, with_acceptance, with_proof
from calibrate.machine import Facts
from calibrate.opened import OpenPair
from calibrate.raw_log import RawLog
from calibrate.timing import Measured, cell_of, measure
from specmath import __version__
from specmath.calibrations import PARTS, Calibration, Place
from specmath.catalogue import load_hardware
from specmath.errors import DataError, InputError
from specmath.pass_fits import fitted_draft_law, fitted_host_law, fitted_pass_law
from specmath.pass_laws import PassLaw
from specmath.pass_peaks import peak_fractions
from specmath.results import Advice


def calibrate_pair(
    pair: OpenPair, log_path: Path, *, watch: Watch, resume: bool = False, fresh: bool = False
) -> Calibration:
    """Measure a pair, and say how well what was measured predicts.

    Args:
        pair: Loaded models.
        log_path: Where every repeat and finding is kept as it is made.
        watch: Opens the progress of each piece of work.
        resume: Whether an interrupted run at `log_path` is taken up.
        fresh: Whether such a run is forgotten.

    Raises:
        AccessError: the log cannot be written, or is of an interrupted run and neither was asked for.
        DataError: the log is of another set-up; no pass of the target, or of the draft, fits.
        InputError: texts would grow beyond what the pair takes.
    """
    skip = pair.request.skip | ({"acceptance"} if pair.is_random else set())
    if "acceptance" not in skip:
        _require_room(pair)
    with RawLog(log_path, _setup(pair), resume=resume, fresh=fresh) as log:
        grid = pair.grid()
        timed = _kept_timing(grid.places, log) or _timed(pair, grid.places, log, watch)
        calibration = _with_laws(pair, timed, grid.left_out)
        if "acceptance" not in skip:
            calibration = with_acceptance(pair, calibration, log, watch)
        if "proof" not in skip:
            calibration = with_proof(pair, calibration, log, watch)
    return calibration


def _require_room(pair: OpenPair) -> None:
    """Texts need room for a token of prompt at least, and for the draft of their last step."""
    longest, k = longest_text(pair), max(pair.request.ks)
    if longest is not None and pair.request.new_tokens > longest - k - 2:
        problem = f"must be at most {longest - k - 2:,}, got {pair.request.new_tokens:,}"
        raise InputError("new_tokens", f"{problem}: the pair takes {longest:,} tokens, a step drafts {k}")


def _setup(pair: OpenPair) -> dict[str, Any]:
    """What an interrupted run must share to be taken up."""
    request, facts = pair.request, pair.facts
    asked = ("target", "draft", "ks", "prompts", "temperatures", "top_ps", "new_tokens", "seed")
    ran = ("device", "dtype", "attention", "threads", "torch", "transformers")
    weights = {
        name: sum(parameter.numel() for parameter in runner.model.parameters())
        for name, runner in (("target", pair.target_runner), ("draft", pair.draft_runner))
        if runner is not None
    }
    return {
        **{name: getattr(request, name) for name in asked},
        **{name: facts.get(name) for name in ran},
        **{f"{name}_params": count for name, count in weights.items()},
        "regime": pair.target_runner.regime,
        "specmath": __version__,
    }


# ---------------------------------------------------------------- passes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """What timing found, and the tokens of the largest graph that it captured; None for none."""

    measured: Measured
    captured: int | None


@torch.inference_mode()  # as the proof decodes
def _timed(pair: OpenPair, places: Sequence[Place], log: RawLog, watch: Watch) -> _Timed:
    passes = pair.passes()
    passes.reserve(places)
    with watch(f"timing {len(places)} cells") as told:
        measured = measure(
            places,
            passes.prepare,
            pair.timer,
            seed=pair.request.seed,
            budget_s=pair.request.limit_s,
            known=log.repeats,
            told=log.tell,
            progress=told,
        )
    for runner in (pair.target_runner, pair.draft_runner):
        if runner is not None:
            runner.pool.reserve(0)  # the proof has slots of its own
    timed = _Timed(measured=measured, captured=pair.target_runner.captured_tokens or None)
    log.keep("timing", _finding(timed))
    return timed


def _finding(timed: _Timed) -> dict[str, Any]:
    """What the repeats in the log do not tell."""
    measured = timed.measured
    return {
        "drift": measured.drift,
        "captured": timed.captured,
        "skipped": [[asdict(place), reason] for place, reason in measured.skipped],
        "warnings": [asdict(advice) for advice in measured.warnings],
    }


def _kept_timing(places: Sequence[Place], log: RawLog) -> _Timed | None:
    """What timing found before an interruption; None where it had not ended, or there are new places."""
    if "timing" not in log.findings:
        return None
    timed = read_back(log.findings["timing"][-1], _read_timing)
    if not {*log.repeats, *(place for place, _ in timed.measured.skipped)}.issuperset(places):
        return None
    cells = tuple(cell_of(place, log.repeats[place]) for place in places if place in log.repeats)
    return replace(timed, measured=replace(timed.measured, cells=cells))


def _read_timing(finding: dict[str, Any]) -> _Timed:
    return _Timed(
        measured=Measured(
            cells=(),
            skipped=tuple((Place(**place), str(reason)) for place, reason in finding["skipped"]),
            drift=finding["drift"],
            warnings=tuple(Advice(**one) for one in finding["warnings"]),
        ),
        captured=finding["captured"],
    )


def _with_laws(pair: OpenPair, timed: _Timed, left_out: Sequence[tuple[Place, str]]) -> Calibration:
    """The calibration as far as timing goes."""
    measured, request = timed.measured, pair.request
    cells, skipped = measured.cells, (*left_out, *measured.skipped)
    _require_parts(pair, {cell.place.part for cell in cells}, skipped)
    target_law, target_fit = fitted_pass_law(cells, expert_counts=pair.expert_counts)
    draft_law, draft_fit = fitted_draft_law(cells)
    plain_host, plain_fit = fitted_host_law(cells, "plain-host")
    step_host, step_fit = fitted_host_law(cells, "step-host")
    return Calibration(
        target=request.target,
        draft=request.draft,
        method="ngram" if request.is_lookup else "draft-model",
        regime=pair.target_runner.regime,
        dtype=pair.target.dtype,
        machine=pair.facts | _drift(measured) | _shares_of_peaks(pair, target_law),
        cells=cells,
        target_law=target_law,
        draft_law=draft_law,
        plain_host=plain_host,
        step_host=step_host,
        fits=(target_fit, draft_fit, plain_fit, step_fit),
        skipped=skipped,
        last_captured_tokens=timed.captured,
        warnings=(*pair.warnings, *measured.warnings, *_of_random(pair), *_of_skipped(skipped)),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        specmath_version=__version__,
    )


def _require_parts(pair: OpenPair, timed: set[str], skipped: Sequence[tuple[Place, str]]) -> None:
    """A law of each part needs a cell of it."""
    for part in PARTS:
        if part not in timed:
            reason = next((reason for place, reason in skipped if place.part == part), "none was asked for")
            name = pair.request.draft if part == "draft" else pair.request.target
            raise DataError(name, f"nothing of part {part} could be timed: {reason}")


def _drift(measured: Measured) -> Facts:
    return {} if measured.drift is None else {"drift": round(measured.drift, 4)}


def _shares_of_peaks(pair: OpenPair, law: PassLaw) -> Facts:
    """What the law makes of the datasheet; nothing where machine or model are not in the catalogue."""
    name, shape = pair.facts.get("hardware"), pair.target.shape
    if name is None or shape is None:
        return {}
    shares = peak_fractions(law, load_hardware(str(name)), shape)
    return {f"{key}_share_of_peak": round(share, 4) for key, share in shares.items()}


def _of_random(pair: OpenPair) -> Iterable[Advice]:
    if pair.is_random:
        alpha, coins = pair.synthetic_alpha, ""
        if alpha is not None and "proof" not in pair.request.skip:
            coins = f"; in the proof a coin accepts each token, with α = {alpha:g}"
        yield Advice(
            code="random-weights",
            text=f"the weights are random: times are real, acceptance is not, and none was measured{coins}",
            remedy="give the acceptance of a real pair, as --alpha, or calibrate that pair",
        )


def _of_skipped(skipped: Sequence[tuple[Place, str]]) -> Iterable[Advice]:
    if skipped:
        place, reason = skipped[0]
        where = f"{place.part} at batch {place.batch}, {place.width} tokens, context {place.context:,}"
        told = f"{len(skipped)} cells were left out, first" if len(skipped) > 1 else "a cell was left out,"
        yield Advice(
            code="cells-left-out",
            text=f"{told} {where}: {reason}",
            remedy="ask for smaller --batch, --context and --k, or free memory",
        )
