"""`--measured FILE.yaml`: a calibration in the place of a profile, its acceptance in that of a typed one.

h100.yaml                                     a calibration, or runs from outside
h100.yaml,temperature=1,rule=rejection        which of its acceptances
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from specmath.cli.named_files import NamedFile, calibration_named, names_a_file, read_named
from specmath.cli.options import (
    LAWS,
    REFINEMENTS,
    AcceptanceOptions,
    DeviceOptions,
    MeasuredOptions,
    PairOptions,
    RatioOptions,
)
from specmath.errors import InputError, SpecmathError, shown

if TYPE_CHECKING:
    from specmath.calibrated_source import Calibrated
    from specmath.calibrations import Calibration
    from specmath.results import Advice
    from specmath.sources import BatchSource

_FIXED: Final = (
    *("tp", "dp", "ep", "pp", "link", "graph_sizes", "quantization", "kv_cache_dtype"),
    *("exit_layer", "draft_quantization", "draft_tp"),
)
"""Options that would change what a step costs, and that a calibration has settled."""
_DEGREES: Final = ("tp", "dp", "ep", "pp", "draft_tp")
_DTYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The options of a question once its calibration was read; as typed where there is none.

    Attributes:
        acceptance: With the law and the match rate of the calibration where none is typed.
        measured: The measurements that are left.
        device: The options of the device; with the machine of the calibration where it is in the catalogue.
        pair: The models, those of the calibration where none is typed.
        context: Contexts asked about: those typed, else the smallest that was calibrated, else 0.
        source: The step costs of the calibration; None without one.
        has_datasheet: Whether machine and models are known well enough for the datasheet beside it.
        is_typed: Whether that is so by what was typed.
    """

    acceptance: AcceptanceOptions
    measured: MeasuredOptions
    device: DeviceOptions
    pair: PairOptions
    context: Sequence[float]
    source: Calibrated | None = None
    has_datasheet: bool = False
    is_typed: bool = False

    def cases(self) -> tuple[BatchSource, ...]:
        """The calibrated case, then those of the datasheet where machine and models are known."""
        assert self.source is not None
        if not self.has_datasheet:
            return (self.source,)
        from specmath.cli.cases import roofline

        try:
            beside = roofline(self.acceptance, self.device, self.pair)
        except SpecmathError:
            if self.is_typed:
                raise
            return (self.source,)  # names of the file that make no pair of the catalogue
        return (self.source, *beside[-3:])


def settled(
    acceptance: AcceptanceOptions,
    measured: MeasuredOptions,
    device: DeviceOptions,
    pair: PairOptions,
    *,
    context: Sequence[float] | None,
    ratios: RatioOptions | None = None,
    k: Sequence[str | None] = (),
    needs_law: bool = True,
) -> Settled:
    """The options with what a calibration among the measurements says in the place of what is not typed.

    Args:
        acceptance: The options that name the law.
        measured: The measurements, as text.
        device: The accelerator, which must not contradict the calibration.
        pair: The models, likewise.
        context: Contexts asked about, to warn beyond the measured ones; None where none is typed.
        ratios: Typed ratios, which exclude a calibration.
        k: Draft lengths asked about, as typed.
        needs_law: Whether the question is about an acceptance.
    """
    as_typed = Settled(
        acceptance=acceptance, measured=measured, device=device, pair=pair, context=context or [0.0]
    )
    found = _calibration(measured.measured or [])
    if found is None:
        return as_typed
    from specmath.calibrated_source import Calibrated

    named, calibration, rest = found
    _refuse_strays(device, pair, ratios)
    device, hardware = _on_hardware(calibration, named, device)
    is_typed = None not in (device.hardware, pair.target) and (
        pair.draft is not None or pair.method == "ngram"
    )
    pair, is_known = _of_models(calibration, named, device, pair)
    taken: tuple[str, ...] = ()
    notes = tuple(_engine_notes(calibration, device))
    if context is None:
        context = [_smallest_context(calibration)]
        taken = (f"context {context[0]:,.0f} is the smallest that was calibrated; --context asks for others",)
    if needs_law and names_no_law(acceptance) and not any(map(_brings_acceptance, rest)):
        acceptance, told, said = _with_law(acceptance, calibration, named, k)
        taken, notes = (told, *taken), (*notes, *said)
    elif needs_law and named.choice is not None:
        problem = "chooses an acceptance of the file, and another is given; drop one of them"
        raise InputError("measured", f"{shown(named.choice)} {problem}")
    acceptance, calibration = _with_match_rate(acceptance, calibration)
    source = Calibrated(
        calibration=calibration,
        name=Path(named.path).name,
        hardware=hardware,
        notes=notes,
        taken=taken,
    )
    return Settled(
        acceptance=acceptance,
        measured=MeasuredOptions(measured=rest or None),
        device=device,
        pair=pair,
        context=context,
        source=source.asked(context),
        has_datasheet=bool(hardware) and is_known,
        is_typed=is_typed,
    )


def typed_contexts(text: str | None) -> Sequence[float] | None:
    """Contexts as they were typed; None where they were not."""
    from specmath.axes import parse_axis

    return None if text is None else parse_axis("context", text)


def _smallest_context(calibration: Calibration) -> float:
    places = [cell.place for cell in calibration.cells if cell.place.part == "target"]
    return float(min((place.context for place in places), default=0))


def names_no_law(acceptance: AcceptanceOptions) -> bool:
    """Whether no option says how many draft tokens are accepted."""
    return all(getattr(acceptance, name) is None for name in (*LAWS, *REFINEMENTS))


def _calibration(texts: Sequence[str]) -> tuple[NamedFile, Calibration, list[str]] | None:
    """The one calibration of passes among the measurements, and what is left; None where there is none."""
    from specmath.calibrations import Calibration

    passes: list[tuple[NamedFile, Calibration]] = []
    rest: list[str] = []
    for text in texts:
        named = calibration_named(text)
        record = None if named is None else read_named(named)
        if named is not None and isinstance(record, Calibration):
            passes.append((named, record))
        else:
            rest.append(text)
    if len(passes) > 1:
        told = " and ".join(shown(named.path) for named, _ in passes[:2])
        raise InputError("measured", f"names two calibrations, {told}; give one")
    return (*passes[0], rest) if passes else None


def _refuse_strays(device: DeviceOptions, pair: PairOptions, ratios: RatioOptions | None) -> None:
    """Options that would change what a step costs: the calibration has measured it."""
    if len(pair.draft or []) > 1:
        raise InputError("measured", "corrects one set-up, and several drafts are compared; ask about one")
    for one in fields(ratios) if ratios is not None else ():
        if getattr(ratios, one.name) is not None:
            raise InputError(one.name, "excludes a calibration, which has measured it; give one of them")
    for name in _FIXED:
        value = getattr(device, name, None) or getattr(pair, name, None)
        if value is not None and not (value == "1" and name in _DEGREES):
            raise InputError(name, "is settled by the calibration; calibrate that set-up, or drop it")


def _on_hardware(
    calibration: Calibration, named: NamedFile, device: DeviceOptions
) -> tuple[DeviceOptions, str]:
    """The device options with the calibrated machine and dtype, and its catalogue name, empty if unknown."""
    from specmath.catalogue import load_hardware

    own, itself = None, str(calibration.machine.get("device", ""))
    with suppress(SpecmathError):
        own = load_hardware(itself, hardware_file=device.hardware_file).name
    typed = device.hardware
    name = own if typed is None else load_hardware(typed, hardware_file=device.hardware_file).name
    if own is not None and name != own:
        raise _contradiction("hardware", typed, itself, named)
    dtype = _DTYPES.get(calibration.dtype, calibration.dtype)
    if device.dtype is not None and _DTYPES.get(device.dtype, device.dtype) != dtype:
        raise _contradiction("dtype", device.dtype, calibration.dtype, named)
    return replace(device, hardware=name, dtype=dtype if dtype in _DTYPES.values() else None), name or ""


def _of_models(
    calibration: Calibration, named: NamedFile, device: DeviceOptions, pair: PairOptions
) -> tuple[PairOptions, bool]:
    """The pair options with the calibrated models where none is typed, and whether the catalogue has them."""
    from specmath.cli.measured_setups import AskedSetup

    own = {"target": _plain_name(calibration.target), "draft": _plain_name(calibration.draft)}
    setup = AskedSetup(values={**own, "method": calibration.method}, hardware_file=device.hardware_file)
    is_lookup = calibration.method == "ngram"
    draft = (pair.draft or [""])[0].partition(",")[0]
    typed = {"target": pair.target, "draft": draft or None, "method": pair.method}
    if is_lookup and draft == "ngram":
        typed["draft"] = None
    for name, value in typed.items():
        if value is not None and ((is_lookup and name == "draft") or setup.differs(name, value)):
            raise _contradiction(name, value, str(getattr(calibration, name)), named)
    names = {name: value or own[name] for name, value in typed.items() if name != "method"}
    filled = replace(
        pair,
        target=names["target"],
        draft=None if is_lookup else pair.draft or [names["draft"]],
        method="ngram" if is_lookup else pair.method,
    )
    models = names.values() if not is_lookup else [names["target"]]
    return filled, all(name is not None and _is_known(name) for name in models)


def _plain_name(name: str) -> str:
    """The model behind random weights."""
    return name.removeprefix("random:")


def _is_known(name: str) -> bool:
    """Whether a model can be had without touching a file that the calibration names."""
    from specmath.model_catalogue import load_model
    from specmath.model_counts import looks_like_counts

    if looks_like_counts(name) or name == "-" or Path(name).exists():
        return True
    with suppress(SpecmathError):
        load_model(name)
        return True
    return False


def _contradiction(name: str, typed: str | None, own: str, named: NamedFile) -> InputError:
    problem = f"{shown(typed)} is not the {shown(own)} that {Path(named.path).name} was measured with"
    return InputError(name, f"{problem}; drop one of them")


def _with_match_rate(
    acceptance: AcceptanceOptions, calibration: Calibration
) -> tuple[AcceptanceOptions, Calibration]:
    """Both with one match rate: the typed one, or that of the acceptance taken, else the calibration's."""
    if calibration.method != "ngram":
        if acceptance.match_rate is not None:
            raise InputError("match_rate", f"is for a lookup draft; {calibration.draft} was calibrated")
        return acceptance, calibration
    from specmath.cli.laws import match_rate

    if acceptance.match_rate is None:
        return replace(acceptance, match_rate=repr(calibration.match_rate)), calibration
    return acceptance, replace(calibration, match_rate=match_rate(acceptance))


def _with_law(
    acceptance: AcceptanceOptions, calibration: Calibration, named: NamedFile, k: Sequence[str | None]
) -> tuple[AcceptanceOptions, str, tuple[Advice, ...]]:
    """The options with the law of the calibration, where it comes from, and what must be known about it."""
    from specmath.axes import parse_axis
    from specmath.calibrated_acceptance import acceptance_taken

    if not calibration.acceptance:
        problem = f"is missing: {Path(named.path).name} holds no acceptance; give --alpha or its kin"
        raise InputError("alpha", problem)
    lengths = [length for text in k if text is not None for length in parse_axis("k", text, whole=True)]
    longest = max(lengths, default=0)
    found = acceptance_taken(calibration.acceptance, _wanted(named), longest_k=longest, name=named.path)
    if found.alpha is not None:
        return replace(acceptance, alpha=repr(found.alpha)), found.told, found.notes
    if acceptance.match_rate is None and found.match_rate < 1:
        acceptance = replace(acceptance, match_rate=repr(found.match_rate))
    kind, rates = ("conditional", found.rates) if found.rates else ("survival", found.survival)
    typed = "/".join(map(repr, rates))
    return replace(acceptance, rates=typed, rates_kind=kind), found.told, found.notes


def _wanted(named: NamedFile) -> Mapping[str, str | float]:
    """Which acceptance of the file was asked for."""
    if named.choice is None:
        return {}
    from specmath.axes import parse_record
    from specmath.calibrated_acceptance import CHOICES
    from specmath.cli.text import parse_number

    numbers = ("temperature", "top_p")
    try:
        record = parse_record("choice", named.choice, CHOICES)
        return {
            name: parse_number(name, value) if name in numbers else value for name, value in record.items()
        }
    except InputError as fault:
        raise InputError("measured", f"{Path(named.path).name}: {fault.problem}") from fault


def _brings_acceptance(text: str) -> bool:
    """Whether a measurement may tell an acceptance of its own, which is that of the user's requests."""
    return names_a_file(text) or "acceptance" in text


def _engine_notes(calibration: Calibration, device: DeviceOptions) -> Iterator[Advice]:
    """That the engine asked about is not what was timed."""
    from specmath.results import Advice

    name = (device.engine or "typical").lower().partition("@")[0]
    if name not in ("typical", "ideal"):
        yield Advice(
            code="engine-not-calibrated",
            text=f"the passes were timed by specmath itself ({calibration.regime}), not on {name}, whose "
            "kernels and host may differ",
            remedy="specmath calibrate --server URL measures the engine",
        )
