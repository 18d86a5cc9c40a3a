"""One calibration from end to end: passes, laws, acceptance, proof. What stands is kept as it stands."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from calibrate.findings import Watch, acceptance_prompts, longest_text, with_acceptance, with_proof
from calibrate.kept_findings import KeptTiming, kept_timing
from calibrate.machine import Facts, load_advice
from calibrate.models import RANDOM
from calibrate.opened import OpenPair
from calibrate.raw_log import RawLog
from calibrate.requests import LOOKUP
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
    encoded = ((), ()) if pair.is_random else acceptance_prompts(pair)  # a typo in them costs no timing
    with RawLog(log_path, _setup(pair), load=pair.load, resume=resume, fresh=fresh) as log:
        grid = pair.grid()
        timed = _kept_timing(grid.places, log) or _timed(pair, grid.places, log, watch)
        calibration = _with_laws(pair, timed, grid.left_out, log.load)
        if "acceptance" not in skip:
            calibration = with_acceptance(pair, calibration, encoded, log, watch)
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
    named = {name: _place_of(getattr(request, name)) for name in ("target", "draft", "prompts")}
    return {
        **{name: getattr(request, name) for name in asked},
        **named,
        **{name: facts.get(name) for name in ran},
        **{f"{name}_params": count for name, count in weights.items()},
        "regime": pair.target_runner.regime,
        "specmath": __version__,
    }


def _place_of(name: str | None) -> str | None:
    """A name by which another run, in another folder, finds the same: a path that is there, resolved."""
    if name is None:
        return None
    path = Path(os.path.expanduser(name.removeprefix(RANDOM)))  # noqa: PTH111 (pathlib raises for ~nobody)
    if name not in (LOOKUP, "-") and path.exists():
        return (RANDOM if name.startswith(RANDOM) else "") + str(path.resolve())
    return name


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
    kept = KeptTiming(
        drift=measured.drift,
        captured=timed.captured,
        skipped=measured.skipped,
        warnings=measured.warnings,
    )
    return kept.document


def _kept_timing(places: Sequence[Place], log: RawLog) -> _Timed | None:
    """What timing found before an interruption; None where it had not ended, or there are new places."""
    if "timing" not in log.findings:
        return None
    kept = kept_timing(log.findings["timing"][-1])
    if not {*log.repeats, *(place for place, _ in kept.skipped)}.issuperset(places):
        return None
    cells = tuple(cell_of(place, log.repeats[place]) for place in places if place in log.repeats)
    measured = Measured(cells=cells, skipped=kept.skipped, drift=kept.drift, warnings=kept.warnings)
    return _Timed(measured=measured, captured=kept.captured)


def _with_laws(
    pair: OpenPair, timed: _Timed, left_out: Sequence[tuple[Place, str]], load: float
) -> Calibration:
    """The calibration as far as timing goes."""
    measured, request = timed.measured, pair.request
    busy = load_advice(load, pair.threads, on_gpu=pair.device.type == "cuda")
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
        machine=pair.facts | {"load": round(load, 2)} | _drift(measured) | _shares_of_peaks(pair, target_law),
        cells=cells,
        target_law=target_law,
        draft_law=draft_law,
        plain_host=plain_host,
        step_host=step_host,
        fits=(target_fit, draft_fit, plain_fit, step_fit),
        skipped=skipped,
        last_captured_tokens=timed.captured,
        warnings=(
            *pair.warnings,
            *((busy,) if busy else ()),
            *measured.warnings,
            *_of_random(pair),
            *_of_skipped(skipped),
        ),
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
