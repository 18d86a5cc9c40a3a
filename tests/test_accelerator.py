"""The record of an accelerator: rates by dtype, its names, what is refused, how it behaves as a value."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest

from specmath.accelerator import DTYPE_BYTES, Accelerator, Measurement, Peak, Rates, Source
from specmath.catalogue import hardware_names, load_hardware
from specmath.errors import InputError, UnknownNameError

SHEET = Source(key="sheet", title="a data sheet", kind="vendor")
SPARSE = "is one of them sparse? Give dense rates"
PREFIX = "is a unit prefix missing or wrong?"
NAN = float("nan")


def part(**changes: Any) -> Accelerator:
    """An accelerator with round numbers, and changes to it."""
    given: dict[str, Any] = {
        "name": "round",
        "title": "Round One",
        "vendor": "Acme",
        "kind": "gpu",
        "peak_flops_per_s": {"fp32": 50e12, "bf16": 400e12, "fp16": 400e12, "fp8": 800e12},
        "memory_bytes": 64e9,
        "memory_bytes_per_s": 2e12,
        "confidence": "low",
        "sources": (SHEET,),
    }
    return Accelerator(**(given | changes))


def peaks(**by_dtype: float) -> dict[str, Any]:
    return {"peak_flops_per_s": by_dtype}


# ---- which rate a dtype runs at


@pytest.mark.parametrize(
    ("name", "dtype", "flops_per_s", "computes_in"),
    [
        pytest.param("h100-sxm", "bf16", 989.4e12, "bf16", id="own path"),
        pytest.param("h100-sxm", "fp8", 1978.9e12, "fp8", id="own fp8 path"),
        pytest.param("h100-sxm", "fp6", 1978.9e12, "fp8", id="fp6 in fp8"),
        pytest.param("h100-sxm", "fp4", 1978.9e12, "fp8", id="fp4 in fp8"),
        pytest.param(
            "h100-sxm", "int4", 989.4e12, "bf16", id="weight-only int4 in 16 bits, though fp8 is there"
        ),
        pytest.param(
            "b200-sxm", "int4", 2250e12, "bf16", id="weight-only int4 in 16 bits, though fp4 is there"
        ),
        pytest.param("b200-sxm", "fp4", 9000e12, "fp4", id="own fp4 path"),
        pytest.param("jetson-agx-thor", "fp6", 517e12, "fp8", id="fp6 is not rounded down to fp4"),
        pytest.param("mi355x", "fp6", 10066.3e12, "fp6", id="fp6 at the fp4 rate of CDNA4"),
        pytest.param("a100-sxm-80gb", "fp8", 312e12, "bf16", id="fp8 in bf16, not in int8"),
        pytest.param("a100-sxm-80gb", "fp4", 312e12, "bf16", id="fp4 in bf16"),
        pytest.param("a100-sxm-80gb", "int8", 624e12, "int8", id="own int8 path"),
        pytest.param("gaudi2", "int8", 432e12, "bf16", id="int8 in bf16, not in fp8"),
        pytest.param("b300-sxm", "int8", 153.5e12, "int8", id="int8 path of Blackwell Ultra, slow as it is"),
        pytest.param("v100-sxm2-32gb", "fp8", 125e12, "fp16", id="fp8 in fp16 without bf16"),
        pytest.param("t4", "int4", 65e12, "fp16", id="int4 in fp16 without bf16"),
        pytest.param("t4", "tf32", 8.1e12, "fp32", id="tf32 in fp32"),
        pytest.param("epyc-9654", "fp16", 7.4e12, "fp32", id="fp16 in fp32 on a CPU, not in bf16"),
        pytest.param("epyc-9654", "int8", 14.7e12, "bf16", id="int8 in bf16 on a CPU"),
        pytest.param("m3-max", "fp16", 14.1e12, "fp16", id="fp16 at the fp32 rate of Apple"),
    ],
)
def test_a_dtype_runs_at_its_own_rate_or_the_next_wider_one(
    name: str, dtype: str, flops_per_s: float, computes_in: str
) -> None:
    peak = load_hardware(name).peak(dtype)
    assert peak == Peak(flops_per_s=flops_per_s, dtype=computes_in, widened=computes_in != dtype)


@pytest.mark.parametrize(
    ("name", "dtype", "remedy"),
    [
        ("v100-sxm2-32gb", "bf16", "NVIDIA V100 SXM2 32GB has no bf16; use fp16 (`--dtype fp16`)"),
        ("t4", "bf16", "NVIDIA T4 has no bf16; use fp16 (`--dtype fp16`)"),
        ("tpu-v5e", "fp16", "Google TPU v5e has no fp16; use bf16 (`--dtype bf16`)"),
        ("gaudi3", "fp32", "Intel Gaudi 3 has no fp32; use bf16 (`--dtype bf16`)"),
    ],
)
def test_a_dtype_without_stand_in_is_refused_with_the_dtype_to_use(
    name: str, dtype: str, remedy: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_hardware(name).peak(dtype)
    assert str(caught.value) == f"dtype: {remedy}"


def test_an_unknown_dtype_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"must be one of fp32, tf32, bf16, fp16, fp8, .* got 'fp12'"):
        part().peak("fp12")


@pytest.mark.parametrize("name", hardware_names())
def test_every_dtype_runs_in_one_as_wide_or_is_refused(name: str) -> None:
    accelerator = load_hardware(name)
    widths = {"tf32": 19, "bf16": 16, "fp16": 16} | {key: 8 * width for key, width in DTYPE_BYTES.items()}
    for dtype, width in widths.items():
        try:
            peak = accelerator.peak(dtype)
        except InputError:
            continue
        assert widths[peak.dtype] >= width
        assert peak.flops_per_s == accelerator.peak_flops_per_s[peak.dtype]


def test_widths_are_those_of_the_formats() -> None:
    bits = {
        "fp32": 32,
        "tf32": 32,
        "bf16": 16,
        "fp16": 16,
        "fp8": 8,
        "int8": 8,
        "fp6": 6,
        "fp4": 4,
        "int4": 4,
    }
    assert dict(DTYPE_BYTES) == {dtype: count / 8 for dtype, count in bits.items()}


@pytest.mark.parametrize(
    ("dtypes", "half"), [("fp32 fp16 bf16", "bf16"), ("fp32 fp16", "fp16"), ("fp32", "fp32")]
)
def test_the_16_bit_dtype_is_bf16_where_there_is_a_choice(dtypes: str, half: str) -> None:
    assert part(**peaks(**dict.fromkeys(dtypes.split(), 100e12))).half_dtype == half


# ---- the names it is found by


@pytest.mark.parametrize("typed", ["h100-sxm", "H100 SXM", "h100_sxm5", " nvidia_h100  80GB-hbm3 "])
def test_case_spaces_and_dashes_do_not_matter(typed: str) -> None:
    assert load_hardware(typed).name == "h100-sxm"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("h100-smx", "unknown hardware 'h100-smx'; nearest: h100-sxm, h100-sxm5, h200-sxm, h200-sxm5"),
        ("ironwod", "unknown hardware 'ironwod'; nearest: ironwood"),
        ("abacus", "unknown hardware 'abacus'; `specmath show hardware` lists all"),
        ("", "unknown hardware ''; `specmath show hardware` lists all"),
        ("--", "unknown hardware '--'; `specmath show hardware` lists all"),
        ("x" * 50_000, f"unknown hardware '{'x' * 56}...; `specmath show hardware` lists all"),
        ("z-" * 25_000, f"unknown hardware '{'z-' * 28}...; `specmath show hardware` lists all"),
        ("jetson", "unknown hardware 'jetson'; say which: jetson-agx-orin-64gb, jetson-agx-thor"),
    ],
)
def test_an_unknown_name_lists_the_nearest_ones(typed: str, message: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_hardware(typed)
    assert str(caught.value) == message


def test_a_word_that_fits_half_the_catalogue_lists_a_dozen() -> None:
    with pytest.raises(UnknownNameError, match=r"say which: v100-sxm2-32gb, .*, h100-sxm and 21 more$"):
        load_hardware("nvidia")


# ---- what the record refuses


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"memory_bytes": 0.0}, f"memory_bytes: must be between 1e+06 and 1e+15, got 0; {PREFIX}"),
        (
            {"memory_bytes_per_s": NAN},
            f"memory_bytes_per_s: must be between 1e+06 and 1e+18, got nan; {PREFIX}",
        ),
        ({"tdp_w": float("inf")}, "tdp_w: must be between 0.01 and 1e+06, got inf"),
        ({"link_bytes_per_s": -1.0}, f"link_bytes_per_s: must be between 1e+06 and 1e+18, got -1; {PREFIX}"),
        ({"memory_bytes": 80}, f"memory_bytes: must be between 1e+06 and 1e+15, got 80; {PREFIX}"),
        ({"release_year": 10**300}, "release_year: must be between 1980 and 2100, got 1e+300"),
        ({"compute_units": 10**300}, "compute_units: must be between 1 and 1e+08, got 1e+300"),
        ({"usd_per_hour": 1e300}, "usd_per_hour: must be between 1e-06 and 1e+06, got 1e+300"),
        (
            {"fp16_accumulate_flops_per_s": {"fp16": 1e300}},
            f"fp16_accumulate_flops_per_s.fp16: must be between 1 and 1e+22, got 1e+300; {PREFIX}",
        ),
        ({"title": "x" * 101}, "title: must have at most 100 characters, got 101"),
        (
            {"confidence": "x" * 50_000},
            f"confidence: must be one of high, medium, low, got '{'x' * 56}...",
        ),
        ({"kind": "toaster"}, "kind: must be one of gpu, cpu, soc, apu, npu, tpu, got 'toaster'"),
        ({"confidence": "sure"}, "confidence: must be one of high, medium, low, got 'sure'"),
        ({"memory_basis": "x"}, "memory_basis: must be one of reported, gib, decimal, assumed, got 'x'"),
        ({"sources": ()}, "sources: must say where the figures come from; name at least one source"),
        (peaks(fp8=1e15), "peak_flops_per_s: must have at least one of bf16, fp16, fp32"),
        (peaks(bf16=0.0), f"peak_flops_per_s.bf16: must be between 1 and 1e+22, got 0; {PREFIX}"),
        (
            peaks(int4=8e14),
            f"peak_flops_per_s: must be one of {', '.join(list(DTYPE_BYTES)[:-1])}, got 'int4'",
        ),
        (peaks(bf16=400.0), f"peak_flops_per_s: 400 FLOP/s over 2e+12 B/s cannot be; {PREFIX}"),
        (
            peaks(bf16=1979e12, tf32=494.7e12),
            f"peak_flops_per_s: bf16 is 4 times tf32, outside 0.9 to 3.8; {SPARSE}",
        ),
        (
            peaks(bf16=1979e12, fp8=1979e12 / 2),
            f"peak_flops_per_s: fp8 is 0.5 times bf16, outside 0.9 to 4.1; {SPARSE}",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        part(**changes)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("figures", "problem"),
    [
        ({}, "measured: gemm has no figure"),
        ({"flops_per_s": -1.0}, f"measured.flops_per_s: must be between 1 and 1e+22, got -1; {PREFIX}"),
        ({"flops_per_s": 600e12}, "measured: gemm is 1.50 of the peak; one of the two is wrong"),
        (
            {"flops_per_s": 300e12, "best_flops_per_s": 500e12},
            "measured: gemm is 1.25 of the peak; one of the two is wrong",
        ),
    ],
)
def test_a_measurement_needs_a_figure_below_the_peak(figures: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        part(measured=(Measurement(what="gemm", source=SHEET, dtype="bf16", **figures),))
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("figures", "problem"),
    [
        ({"dtype": "fp12", "flops_per_s": 1e14}, "must be one of fp32, tf32, .*, got 'fp12'"),
        ({"dtype": "fp12", "bytes_per_s": 1e12}, "must be one of fp32, tf32, .*, got 'fp12'"),
        ({"dtype": "bf16", "flops_per_s": 1e14}, "Round One has no bf16; use fp16"),
    ],
)
def test_the_dtype_of_a_measurement_is_refused_as_such(figures: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=f"^measured.dtype: {problem}"):
        part(**peaks(fp16=400e12), measured=(Measurement(what="compute", source=SHEET, **figures),))


def test_an_unknown_kind_of_measurement_or_source_is_refused() -> None:
    with pytest.raises(InputError, match=r"measured.what: must be one of max_matmul, .* got 'hearsay'"):
        part(measured=(Measurement(what="hearsay", source=SHEET, fraction_of_peak=0.5),))
    with pytest.raises(InputError, match=r"kind: must be one of vendor, table, .* got 'rumour'"):
        Source(key="x", title="x", kind="rumour")


@pytest.mark.parametrize(
    ("measurement", "typical", "best"),
    [
        ({"what": "gemm", "dtype": "bf16", "flops_per_s": 300e12, "best_flops_per_s": 360e12}, 0.75, 0.9),
        ({"what": "gemm", "dtype": "fp4", "flops_per_s": 200e12}, 0.25, None),  # fp4 runs in fp8 here
        ({"what": "compute", "flops_per_s": 100e12}, 0.25, None),  # no dtype: the 16-bit one
        ({"what": "weight_stream", "bytes_per_s": 1.5e12, "best_bytes_per_s": 1.8e12}, 0.75, 0.9),
        ({"what": "peer_copy", "bytes_per_s": 40e9}, 0.8, None),
        ({"what": "read", "fraction_of_peak": 0.81}, 0.81, None),
    ],
)
def test_a_measurement_is_compared_with_the_peak_of_its_kind(
    measurement: dict[str, Any], typical: float, best: float | None
) -> None:
    accelerator = part(link_type="wire", link_bytes_per_s=50e9)
    figure = Measurement(source=SHEET, **measurement)
    assert accelerator.fraction_of_peak(figure) == pytest.approx(typical, rel=1e-12)
    assert accelerator.fraction_of_peak(figure, "best") == (best and pytest.approx(best, rel=1e-12))


# ---- the record as a value


def test_a_record_is_immutable_hashable_and_survives_pickle_and_copy() -> None:
    accelerator = load_hardware("rtx-4090")
    assert pickle.loads(pickle.dumps(accelerator)) == accelerator
    assert copy.deepcopy(accelerator) == accelerator
    assert hash(accelerator) == hash(load_hardware("rtx-4090"))
    assert replace(accelerator, tdp_w=300.0) != accelerator
    with pytest.raises(AttributeError):
        accelerator.tdp_w = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        accelerator.peak_flops_per_s["bf16"] = 1.0  # type: ignore[index]


def test_a_dict_handed_in_is_copied() -> None:
    rates = {"bf16": 400e12}
    accelerator = part(peak_flops_per_s=rates)
    rates["bf16"] = 1.0
    assert accelerator.peak("bf16").flops_per_s == 400e12
    assert repr(Rates(rates)) == "Rates({'bf16': 1.0})"
