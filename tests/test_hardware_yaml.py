"""hardware.yaml, entry by entry: physics, units, sources, names.

The expectations are independent of the file: rate ratios of each architecture, units × FLOP × clock, bus
width × data rate, and published shares of peak.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from specmath.accelerator import Accelerator
from specmath.catalogue import hardware_catalogue, load_hardware
from specmath.errors import UnknownNameError
from specmath.profile_catalogue import load_profile, profile_names

FILE = Path(__file__).parent.parent / "hardware.yaml"
RAW: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))  # a reader that knows YAML 1.1 only
ENTRIES = pytest.mark.parametrize("part", RAW["accelerators"], indirect=True)


@pytest.fixture
def part(request: pytest.FixtureRequest) -> Accelerator:
    return load_hardware(request.param)


# Rates over the 16-bit rate, by architecture.
AMPERE = {"fp32": 1 / 4, "tf32": 1 / 2, "int8": 2}
ADA = {"fp32": 1 / 4, "tf32": 1 / 2, "fp8": 2, "int8": 2}
HOPPER = {"fp32": 1 / 14.79, "tf32": 1 / 2, "fp8": 2, "int8": 2}
BLACKWELL = {"fp32": 1 / 30.6, "tf32": 1 / 2, "fp8": 2, "fp6": 2, "fp4": 4, "int8": 2}
ARCHITECTURES: list[tuple[dict[str, float], str]] = [
    ({"fp32": 1 / 8, "int8": 1 / 2}, "v100-sxm2-32gb"),
    ({"fp32": 1 / 8, "int8": 2}, "t4 jetson-agx-orin-64gb"),
    (AMPERE, "a10 a40 rtx-a6000"),
    (AMPERE | {"fp32": 1 / 2}, "a10g"),
    (AMPERE | {"fp32": 1 / 16}, "a100-pcie-40gb a100-sxm-40gb a100-pcie-80gb a100-sxm-80gb"),
    (HOPPER, "h100-pcie h100-sxm gh200-96gb gh200-144gb h200-sxm"),
    (HOPPER | {"fp32": 1 / 13.93}, "h100-nvl h200-nvl"),
    (BLACKWELL, "b200-sxm gb200"),
    (BLACKWELL | {"fp4": 6, "int8": 0.0671}, "b300-sxm gb300"),
    (ADA, "l4 l40s rtx-6000-ada"),
    (ADA | {"fp32": 1 / 2}, "l40"),
    ({"fp32": 1 / 2, "tf32": 1 / 2, "int8": 4}, "rtx-3090"),
    ({"fp32": 1 / 2, "tf32": 1 / 2, "fp8": 2, "int8": 4}, "rtx-4090"),
    ({"fp32": 1 / 2, "tf32": 1 / 2, "fp8": 2, "fp6": 2, "fp4": 8, "int8": 4}, "rtx-5090"),
    (BLACKWELL | {"fp32": 1 / 4}, "rtx-pro-6000-blackwell-ws rtx-pro-6000-blackwell-server dgx-spark-gb10"),
    ({"fp32": 1 / 32, "fp8": 2, "fp4": 4, "int8": 2}, "jetson-agx-thor"),
    ({"fp32": 1 / 4, "int8": 1}, "mi210 mi250x-module mi250x-gcd"),
    ({"fp32": 1 / 8, "tf32": 1 / 2, "fp8": 2, "int8": 2}, "mi300a mi300x mi325x"),
    ({"fp32": 1 / 16, "fp8": 2, "fp6": 4, "fp4": 4, "int8": 2}, "mi350x mi355x"),
    ({"fp32": 1 / 2, "int8": 1}, "strix-halo-8060s"),
    ({"fp8": 2}, "gaudi2 tpu-v7x"),
    ({"fp8": 1}, "gaudi3"),
    ({"fp32": 1 / 32, "int8": 2}, "xeon-8480plus xeon-6980p-mrdimm"),
    ({"fp32": 1 / 2}, "epyc-9654 epyc-9755"),
    ({"int8": 1}, "tpu-v4"),
    ({"int8": 2}, "tpu-v5e"),
    ({"fp8": 1, "int8": 2}, "tpu-v5p tpu-v6e"),
    ({"fp32": 1 / 4, "tf32": 1, "fp8": 1, "int8": 2}, "inferentia2 trainium1"),
    ({"fp32": 0.271, "tf32": 1, "fp8": 1.948}, "trainium2"),
    ({"fp32": 0.273, "tf32": 1, "fp8": 3.75, "fp4": 3.75}, "trainium3"),
    ({"fp32": 1}, "m1-max m1-ultra m2-max m2-ultra m3-max m3-ultra m4-max"),
    ({"fp32": 1, "fp16": 4}, "m5-max"),
]
RATIOS = {name: ratios for ratios, names in ARCHITECTURES for name in names.split()}


@ENTRIES
def test_the_rates_stand_to_each_other_as_the_architecture_says(part: Accelerator) -> None:
    peaks = dict(part.peak_flops_per_s)
    half = peaks.pop(part.half_dtype)
    if peaks.get("fp16") == half:
        del peaks["fp16"]
    assert {dtype: rate / half for dtype, rate in peaks.items()} == pytest.approx(
        RATIOS[part.name], rel=0.025
    )


@pytest.mark.parametrize(
    ("name", "flops_per_unit_and_clock", "ghz"),
    [
        ("v100-sxm2-32gb", 1024, 1.53),
        ("t4", 1024, 1.59),
        ("a10", 1024, 1.695),
        ("a40", 1024, 1.74),
        ("rtx-a6000", 1024, 1.8),
        ("a100-sxm-80gb", 2048, 1.41),
        ("h100-sxm", 4096, 1.83),
        ("h100-pcie", 4096, 1.62),
        ("l4", 1024, 2.04),
        ("l40s", 1024, 2.52),
        ("rtx-6000-ada", 1024, 2.505),
        ("rtx-3090", 512, 1.695),
        ("rtx-4090", 512, 2.52),
        ("rtx-5090", 512, 2.407),
        ("rtx-pro-6000-blackwell-ws", 1024, 2.617),
        ("rtx-pro-6000-blackwell-server", 1024, 2.43),
        ("dgx-spark-gb10", 1024, 2.5),
        ("jetson-agx-orin-64gb", 2048, 1.3),
        ("mi210", 1024, 1.7),
        ("mi250x-gcd", 1024, 1.7),
        ("mi300a", 2048, 2.1),
        ("mi300x", 2048, 2.1),
        ("mi350x", 4096, 2.2),
        ("mi355x", 4096, 2.4),
        ("strix-halo-8060s", 512, 2.9),
        ("xeon-8480plus", 2048, 2.0),
        ("xeon-6980p-mrdimm", 2048, 2.0),
        ("epyc-9654", 64, 2.4),
        ("epyc-9755", 128, 2.7),
        ("m1-max", 256, 1.296),
        ("m2-ultra", 256, 1.398),
        ("m3-max", 256, 1.38),
    ],
)
def test_the_16_bit_peak_is_units_times_flops_times_clock(
    name: str, flops_per_unit_and_clock: int, ghz: float
) -> None:
    part = load_hardware(name)
    assert part.compute_units is not None
    product = part.compute_units * flops_per_unit_and_clock * ghz * 1e9
    assert part.peak(part.half_dtype).flops_per_s == pytest.approx(product, rel=0.013)


@pytest.mark.parametrize(
    ("name", "bus_bits", "gigabits_per_s"),
    [
        ("v100-sxm2-32gb", 4096, 1.752),
        ("t4", 256, 10),
        ("a10", 384, 12.5),
        ("a40", 384, 14.5),
        ("rtx-a6000", 384, 16),
        ("a100-sxm-40gb", 5120, 2.43),
        ("a100-pcie-80gb", 5120, 3.024),
        ("a100-sxm-80gb", 5120, 3.186),
        ("h100-sxm", 5120, 5.23),
        ("l4", 192, 12.5),
        ("l40", 384, 18),
        ("l40s", 384, 18),
        ("rtx-3090", 384, 19.5),
        ("rtx-4090", 384, 21),
        ("rtx-5090", 512, 28),
        ("rtx-6000-ada", 384, 20),
        ("rtx-pro-6000-blackwell-ws", 512, 28),
        ("dgx-spark-gb10", 256, 8.533),
        ("jetson-agx-orin-64gb", 256, 6.4),
        ("jetson-agx-thor", 256, 8.533),
        ("mi210", 4096, 3.2),
        ("mi250x-module", 8192, 3.2),
        ("mi300x", 8192, 5.2),
        ("mi325x", 8192, 5.9),
        ("mi355x", 8192, 8),
        ("strix-halo-8060s", 256, 8),
        ("xeon-8480plus", 512, 4.8),
        ("xeon-6980p-mrdimm", 768, 8.8),
        ("epyc-9654", 768, 4.8),
        ("epyc-9755", 768, 6),
        ("m1-max", 512, 6.4),
        ("m4-max", 512, 8.533),
    ],
)
def test_the_bandwidth_is_bus_width_times_data_rate(name: str, bus_bits: int, gigabits_per_s: float) -> None:
    product = bus_bits * gigabits_per_s * 1e9 / 8
    assert load_hardware(name).memory_bytes_per_s == pytest.approx(product, rel=0.025)


@ENTRIES
def test_the_memory_agrees_with_its_label(part: Accelerator) -> None:
    assert part.marketed_memory is not None
    gib = part.memory_bytes / 2**30
    label = int(re.findall(r"\d+", part.marketed_memory)[0])
    if part.memory_basis == "gib":
        assert gib == label
    elif part.memory_basis == "reported":  # ECC takes up to 1/16, Blackwell Ultra a little more
        assert 0.93 * label < gib < label * 1.0 or part.name == "b200-sxm"
        assert part.memory_bytes % 2**20 == 0 or part.name == "dgx-spark-gb10"
    else:
        assert part.memory_basis == "assumed"
        assert gib == label * 64  # channels, a DIMM of 64 GiB in each
        assert any("DIMMs of 64 GiB assumed" in note for note in part.notes)


@ENTRIES
def test_the_ridge_lies_where_real_parts_are(part: Accelerator) -> None:
    ridge = part.peak(part.half_dtype).flops_per_s / part.memory_bytes_per_s
    assert 26 < ridge < 950  # M1 Max and Thor mark the ends


@ENTRIES
def test_an_entry_is_dated_sourced_and_judged(part: Accelerator) -> None:
    raw = RAW["accelerators"][part.name]
    assert part.checked is not None
    assert re.fullmatch(r"20\d\d-\d\d", part.checked)
    assert part.release_year is not None
    assert 2017 <= part.release_year <= int(part.checked[:4])
    assert [source.key for source in part.sources] == raw["sources"]
    assert len(set(raw["sources"])) == len(raw["sources"])
    assert part.confidence != "high" or any(source.kind == "vendor" for source in part.sources)
    assert part.confidence == "low" or {source.kind for source in part.sources} != {"derived"}
    assert (part.usd_per_hour is None) == (part.price_source is None) == (part.price_date is None)


@ENTRIES
def test_a_link_is_half_of_what_is_marketed(part: Accelerator) -> None:
    link = RAW["accelerators"][part.name].get("link")
    assert (link is None) == (part.link_bytes_per_s is None)
    if link:
        assert link["bytes_per_s"] == pytest.approx(link["marketed_bytes_per_s"] / 2, rel=1e-9)


@ENTRIES
def test_every_figure_is_a_number_to_any_reader_of_yaml_1_1(part: Accelerator) -> None:
    raw = RAW["accelerators"][part.name]
    assert raw["peak_flops_per_s"] == dict(part.peak_flops_per_s)
    assert raw.get("fp16_accumulate_flops_per_s", {}) == dict(part.fp16_accumulate_flops_per_s)
    assert (raw["memory"]["bytes"], raw["memory"]["bytes_per_s"]) == (
        part.memory_bytes,
        part.memory_bytes_per_s,
    )
    for key in ("llc_bytes", "compute_units", "tdp_w", "release_year"):
        assert raw.get(key) == getattr(part, key)
    assert len(raw.get("measured", [])) == len(part.measured)
    for record, figure in zip(raw.get("measured", []), part.measured, strict=True):
        for key in set(record) - {"source", "conditions"}:
            assert record[key] == getattr(figure, key)


PUBLISHED_SHARES = [  # ml-engineering's MAMF and the reduction of aiconfigurator's GEMM timings, in percent
    ("a100-sxm-80gb", "max_matmul", "bf16", 86.9, None),
    ("a100-sxm-80gb", "gemm", "bf16", 80, 92),
    ("a100-sxm-80gb", "weight_stream", "bf16", 83, 87),
    ("h100-sxm", "max_matmul", "bf16", 80.3, None),
    ("h100-sxm", "max_matmul", "fp8", 70.9, None),
    ("h100-sxm", "gemm", "fp8", 61, 68),
    ("h100-sxm", "weight_stream", "bf16", 89, 92),
    ("h100-sxm", "peer_copy", None, 84, None),
    ("h200-sxm", "weight_stream", "bf16", 85, 90),
    ("gh200-144gb", "max_matmul", "bf16", 83.7, None),
    ("gh200-144gb", "max_matmul", "fp8", 77.6, None),
    ("b200-sxm", "gemm", "fp4", 45, 51),
    ("gb200", "gemm", "bf16", 71, 75),
    ("b300-sxm", "gemm", "fp4", 33, 37),
    ("gb300", "gemm", "fp8", 56, 64),
    ("l40s", "gemm", "fp8", 50, 54),
    ("rtx-pro-6000-blackwell-server", "gemm", "bf16", 86, 91),
    ("rtx-4090", "copy", None, 91, None),
    ("dgx-spark-gb10", "max_matmul", "bf16", 74, None),
    ("mi250x-gcd", "max_matmul", "bf16", 76.7, None),
    ("mi300x", "compute", None, 45, None),
    ("mi355x", "max_matmul", "bf16", 62, None),
    ("gaudi2", "max_matmul", "fp8", 96, None),
    ("gaudi3", "max_matmul", "bf16", 74, None),
    ("strix-halo-8060s", "read", None, 83, None),
]


@pytest.mark.parametrize(("name", "what", "dtype", "typical", "best"), PUBLISHED_SHARES)
def test_a_measured_share_of_the_peak_is_the_published_one(
    name: str, what: str, dtype: str | None, typical: float, best: float | None
) -> None:
    part = load_hardware(name)
    figure = next(figure for figure in part.measured if (figure.what, figure.dtype) == (what, dtype))
    assert part.fraction_of_peak(figure) == pytest.approx(typical / 100, abs=0.0061)
    assert part.fraction_of_peak(figure, "best") == (best and pytest.approx(best / 100, abs=0.0061))


def test_there_are_65_entries_and_no_source_is_idle() -> None:
    parts = hardware_catalogue().values()
    cited = {source.key for part in parts for source in part.sources}
    cited |= {figure.source.key for part in parts for figure in part.measured}
    cited |= {part.price_source.key for part in parts if part.price_source}
    profiles = [load_profile(name) for name in profile_names()]
    cited |= {
        one.key for profile in profiles for constant in profile.constants.values() for one in constant.sources
    }
    assert len(RAW["accelerators"]) == len(parts) == len(RATIOS) == 65
    assert set(RAW["sources"]) == cited


ALIASES = [(alias, name) for name, raw in RAW["accelerators"].items() for alias in raw.get("aliases", [])]


@pytest.mark.parametrize(("alias", "name"), ALIASES)
def test_an_alias_means_its_part(alias: str, name: str) -> None:
    assert load_hardware(alias).name == name
    assert load_hardware(alias.upper().replace("-", "_")).name == name


def test_no_alias_is_claimed_twice() -> None:
    spoken = [re.sub(r"\W+", "-", alias.lower()) for alias, _ in ALIASES] + list(RAW["accelerators"])
    assert len(set(spoken)) == len(spoken)


@pytest.mark.parametrize(
    ("device_name", "name"),
    [
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA B200", "b200-sxm"),
        ("NVIDIA B300 SXM6 AC", "b300-sxm"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-blackwell-ws"),
        ("NVIDIA GB10", "dgx-spark-gb10"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Radeon 8060S Graphics", "strix-halo-8060s"),
        ("TPU v5 lite", "tpu-v5e"),
        ("Apple M3 Ultra", "m3-ultra"),
    ],
)
def test_what_torch_jax_or_the_system_prints_is_known(device_name: str, name: str) -> None:
    assert load_hardware(device_name).name == name


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("h100", ["h100-pcie", "h100-sxm", "h100-nvl"]),
        ("h100-80gb", ["h100-pcie", "h100-sxm"]),
        ("a100", ["a100-pcie-40gb", "a100-sxm-40gb", "a100-pcie-80gb", "a100-sxm-80gb"]),
        ("A100 80GB", ["a100-pcie-80gb", "a100-sxm-80gb"]),
        ("v100", ["v100-sxm2-32gb"]),  # 16 GB and PCIe cards exist: even one candidate is not picked
        ("gh200", ["gh200-96gb", "gh200-144gb"]),
        ("h200", ["h200-sxm", "h200-nvl"]),
        ("mi250x", ["mi250x-module", "mi250x-gcd"]),
        ("rtx-pro-6000", ["rtx-pro-6000-blackwell-ws", "rtx-pro-6000-blackwell-server"]),
        ("tpu v5", ["tpu-v5e", "tpu-v5p"]),
        ("mi300", ["mi300a", "mi300x"]),
    ],
)
def test_a_name_of_several_parts_lists_them_and_picks_none(name: str, candidates: list[str]) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_hardware(name)
    assert str(caught.value) == f"unknown hardware {name!r}; say which: {', '.join(candidates)}"
