"""What `show hardware` shows: the list and its filters, the sheet of one part; and docs/hardware.md."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from specmath.accelerator import DTYPE_BYTES
from specmath.catalogue import hardware_catalogue, hardware_names, load_hardware
from specmath.errors import InputError, UnknownNameError
from specmath.hardware_tables import HardwareList, hardware_sheet, list_hardware
from specmath.units import parse_quantity

ROOT = Path(__file__).parent.parent
RAW: dict[str, Any] = yaml.safe_load((ROOT / "hardware.yaml").read_text(encoding="utf-8"))


def test_the_list_has_a_row_per_part_with_empty_cells_for_what_is_not_there() -> None:
    rows = {row["name"]: row for row in list_hardware().rows()}
    assert len(rows) == 65
    assert tuple(rows["t4"]) == HardwareList.keys
    h100, t4 = rows["h100-sxm"], rows["t4"]
    assert (h100["bf16_flops_per_s"], h100["fp8_flops_per_s"], h100["fp4_flops_per_s"]) == (
        989.4e12,
        1978.9e12,
        None,
    )
    assert h100["ridge_tokens"] == pytest.approx(989.4 / 3.35, rel=1e-12)
    assert (t4["bf16_flops_per_s"], t4["link_bytes_per_s"]) == (None, None)
    assert t4["ridge_tokens"] == pytest.approx(65 / 0.32, rel=1e-12)  # fp16
    assert rows["m1-max"]["tdp_w"] is None


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({}, 65),
        ({"vendor": "nvidia"}, 33),
        ({"vendor": "AMD"}, 11),
        ({"vendor": "AMD", "kind": "gpu"}, 7),
        ({"kind": "cpu"}, 4),
        ({"vendor": "Apple", "kind": "tpu"}, 0),
    ],
)
def test_the_list_is_filtered_by_vendor_and_kind(filters: dict[str, str], count: int) -> None:
    listed = list_hardware(**filters)
    assert len(listed) == len(list(listed.rows())) == len(listed.to_frame()) == count
    assert {key: listed.inputs[key] for key in filters} == filters


def test_an_unknown_filter_is_refused_with_what_there_is() -> None:
    with pytest.raises(UnknownNameError, match="unknown vendor 'nvidai'; nearest: nvidia"):
        list_hardware(vendor="nvidai")
    with pytest.raises(InputError, match="kind: must be one of gpu, cpu, soc, apu, npu, tpu, got 'card'"):
        list_hardware(kind="card")


def test_chunks_come_in_order_and_no_larger_than_asked() -> None:
    chunks = list(list_hardware().chunks(30))
    assert [len(chunk["name"]) for chunk in chunks] == [30, 30, 5]
    assert [name for chunk in chunks for name in chunk["name"]] == list(hardware_catalogue())
    sheet = hardware_sheet(load_hardware("h100-sxm"))
    assert [len(chunk["dtype"]) for chunk in sheet.chunks(4)] == [4, 4, 1]


def test_the_sheet_has_a_row_per_dtype_with_the_ridge_at_its_width() -> None:
    rows = {row["dtype"]: row for row in hardware_sheet(load_hardware("a100-sxm-80gb")).rows()}
    assert list(rows) == list(DTYPE_BYTES)
    expected = {  # computes in, TFLOP/s, bytes; bandwidth 2.039 TB/s
        "bf16": ("bf16", 312, 2),
        "int8": ("int8", 624, 1),
        "fp8": ("bf16", 312, 1),
        "int4": ("bf16", 312, 0.5),
        "fp32": ("fp32", 19.5, 4),
    }
    for dtype, (computes_in, tera, width) in expected.items():
        row = rows[dtype]
        assert (row["computes_in"], row["bytes_per_param"]) == (computes_in, width)
        assert row["peak_flops_per_s"] == tera * 1e12
        assert row["ridge_flops_per_byte"] == pytest.approx(tera / 2.039, rel=1e-12)
        assert row["ridge_tokens"] == pytest.approx(tera / 2.039 * width / 2, rel=1e-12)


def test_the_sheet_leaves_out_what_cannot_run_and_says_so() -> None:
    sheet = hardware_sheet(load_hardware("tpu-v4"))
    assert [row["dtype"] for row in sheet.rows()] == ["bf16", "fp8", "int8", "fp6", "fp4", "int4"]
    assert "cannot run: fp32, tf32, fp16" in sheet.assumptions


@pytest.mark.parametrize("name", hardware_names())
def test_nothing_of_an_entry_is_lost_in_its_sheet(name: str) -> None:
    accelerator = load_hardware(name)
    sheet = hardware_sheet(accelerator)
    told = "\n".join([*sheet.assumptions, *sheet.derivation])
    renamed = {"name": "hardware"}
    in_text = {"peak_flops_per_s", "sources", "fp16_accumulate_flops_per_s", "measured", "notes"}
    for field in fields(accelerator):
        if field.name not in in_text | {"price_source", "price_date"}:
            value = sheet.inputs[renamed.get(field.name, field.name)]
            assert value == (
                list(accelerator.aliases) if field.name == "aliases" else getattr(accelerator, field.name)
            )
    assert {row["dtype"]: row["peak_flops_per_s"] for row in sheet.rows()}.items() >= set(
        accelerator.peak_flops_per_s.items()
    )
    cited = [*accelerator.sources, *(figure.source for figure in accelerator.measured)]
    if accelerator.price_source:
        cited.append(accelerator.price_source)
        assert f"{accelerator.price_date} [{accelerator.price_source.key}]" in told
    assert all(f"[{source.key}] {source.title} ({source.kind}" in told for source in cited)
    assert all(note in told for note in accelerator.notes)
    assert len([line for line in sheet.derivation if line.startswith("measured ")]) == len(
        accelerator.measured
    )
    assert told.count("no peak:") == len(accelerator.fp16_accumulate_flops_per_s)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("h100-sxm", "ridge in fp32: 66.9 TFLOP/s / 3.35 TB/s = 19.97 FLOP per byte"),
        ("h100-sxm", "times 4 bytes over 2 FLOP per parameter and token: 39.94 tokens"),
        ("tpu-v6e", "ridge in bf16: 918 TFLOP/s / 1.638 TB/s = 560.4 FLOP per byte"),
        (
            "h100-sxm",
            "measured gemm in bf16: 798 TFLOP/s (0.81 of the peak), best 836 TFLOP/s (0.84 of the peak) "
            "[aic_perf]",
        ),
        (
            "h100-sxm",
            "measured gemm latency fit in fp8: 2.78 TB/s (0.83 of the peak), plus 5.1 µs a product "
            "[aic_perf]",
        ),
        ("mi300x", "measured read: 0.81 of the peak [mi300x_paper]"),
        ("a100-pcie-80gb", "measured copy: 1.727 TB/s (0.89 of the peak), A800 80GB PCIe [mli_bench_4]"),
        ("rtx-4090", "fp8 with FP16 accumulation, no peak: 660.6 TFLOP/s"),
    ],
)
def test_the_derivation_tells_the_ridge_and_each_measurement(name: str, line: str) -> None:
    assert line in hardware_sheet(load_hardware(name)).derivation


@pytest.mark.parametrize(("name", "codes"), [("h100-sxm", []), ("m5-max", ["low-confidence"])])
def test_weak_figures_come_with_a_warning(name: str, codes: list[str]) -> None:
    assert [advice.code for advice in hardware_sheet(load_hardware(name)).warnings] == codes


# ---- docs/hardware.md

DOCS = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")


def test_the_example_of_the_docs_is_a_complete_overlay(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)[0], encoding="utf-8")
    assert list(hardware_catalogue(hardware_file=path))[65:] == ["my-npu", "h100-sxm-500w"]
    mine = load_hardware("my-npu", hardware_file=path)
    capped = load_hardware("h100-sxm-500w", hardware_file=path)
    assert mine.fraction_of_peak(mine.measured[0]) == 0.75
    assert (capped.memory_bytes, capped.tdp_w) == (load_hardware("h100-sxm").memory_bytes, 500)


CHOSEN = re.findall(r"^\| `([\w-]+)` \| `([\w.]+)` \| .*? \| (.*?) \|", DOCS, re.MULTILINE)


@pytest.mark.parametrize(("name", "field", "chosen"), CHOSEN)
def test_the_figure_chosen_in_the_docs_is_that_of_the_catalogue(name: str, field: str, chosen: str) -> None:
    value = RAW["accelerators"][name]
    for key in field.split("."):
        value = value[key]
    unit = {"bytes_per_s": "B/s", "llc_bytes": "B", "compute_units": ""}.get(field.split(".")[-1], "FLOP/s")
    assert parse_quantity(field, chosen, unit) == pytest.approx(value, rel=1e-12)


def test_every_field_is_explained_in_the_docs_and_at_the_head_of_the_file() -> None:
    keys = {key for raw in RAW["accelerators"].values() for key in raw} - {"notes"}
    head = (ROOT / "hardware.yaml").read_text(encoding="utf-8").partition("schema_version")[0]
    assert len(CHOSEN) > 20
    assert {key for key in keys if f"`{key}" not in DOCS} == set()
    assert {key for key in keys if not re.search(rf"^#   .*\b{key}\b", head, re.MULTILINE)} == set()
