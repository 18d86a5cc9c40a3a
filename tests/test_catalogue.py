"""Overlay files over the catalogue, names that are nearly right, and what is wrong in an entry."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from specmath import catalogue_files
from specmath.catalogue import hardware_catalogue, hardware_names, load_hardware
from specmath.errors import AccessError, DataError, SpecmathError

MINE = """\
accelerators:
  mine:
    title: "My part"
    vendor: Me
    kind: npu
    peak_flops_per_s: {bf16: 100 TFLOP/s, fp8: 0.2 PFLOP/s}
    memory: {bytes: 80 GiB, bytes_per_s: "2 TB/s"}
    confidence: low
    sources: [bench]
sources:
  bench: {title: "own bench", kind: measurement}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(content: str | bytes, name: str = "my.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def refusal(path: Path, name: str = "mine") -> str:
    """The one line with which a file is refused, without its folder."""
    with pytest.raises(SpecmathError) as caught:
        load_hardware(name, hardware_file=path)
    line = str(caught.value)
    assert "\n" not in line
    assert isinstance(caught.value, DataError | AccessError)
    return line.removeprefix(f"{path.parent}{os.sep}")


def changed(old: str, new: str) -> str:
    assert MINE.count(old) == 1
    return MINE.replace(old, new)


# ---- overlays


def test_an_overlay_adds_an_entry_with_quantities_in_units(write: Write) -> None:
    part = load_hardware("Mine", hardware_file=write(MINE))
    assert dict(part.peak_flops_per_s) == {"bf16": 100e12, "fp8": 200e12}
    assert (part.memory_bytes, part.memory_bytes_per_s) == (80 * 2**30, 2e12)
    assert [source.title for source in part.sources] == ["own bench"]
    absent = ("link_bytes_per_s", "host_link_type", "llc_bytes", "tdp_w", "usd_per_hour", "release_year")
    assert [getattr(part, name) for name in absent] == [None] * len(absent)


def test_an_overlay_leaves_the_other_entries_alone(write: Write) -> None:
    path = write(MINE)
    assert hardware_names(hardware_file=path) == (*hardware_names(), "mine")
    assert load_hardware("h100-sxm", hardware_file=path) == load_hardware("h100-sxm")
    assert list(hardware_catalogue(hardware_file=path)) == [*hardware_names(), "mine"]


def test_an_entry_replaces_the_packaged_one_whole_but_keeps_its_names(write: Write) -> None:
    path = write(changed("  mine:\n", "  h100-sxm:\n"))
    part = load_hardware("NVIDIA H100 80GB HBM3", hardware_file=path)
    assert (part.name, part.title, part.tdp_w, part.notes) == ("h100-sxm", "My part", None, ())
    assert "NVIDIA H100 80GB HBM3" in part.aliases
    assert len(hardware_names(hardware_file=path)) == 65


def test_later_files_win_and_empty_places_in_the_variable_do_not_count(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(changed("My part", title), f"{title}.yaml") for title in ("first", "second", "third")]
    monkeypatch.setenv("SPECMATH_HARDWARE", os.pathsep.join([str(paths[0]), "", str(paths[1])]))
    assert load_hardware("mine").title == "second"
    assert load_hardware("mine", hardware_file=paths[2]).title == "third"
    monkeypatch.setenv("SPECMATH_HARDWARE", str(paths[0]))
    assert load_hardware("mine").title == "first"


def test_a_missing_file_of_the_variable_says_where_it_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMATH_HARDWARE", "~nobody-of-this-name/x")
    with pytest.raises(AccessError) as caught:
        hardware_names()
    problem = "cannot be read: no such file or directory; named in $SPECMATH_HARDWARE"
    assert str(caught.value) == f"~nobody-of-this-name/x: {problem}"


def test_an_empty_path_is_named_as_given() -> None:
    with pytest.raises(AccessError, match=r"^'': is no path; name a YAML file$"):
        hardware_names(hardware_file="")


def test_the_home_folder_may_be_written_as_a_tilde(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(write(MINE).parent))
    monkeypatch.setenv("SPECMATH_HARDWARE", "~/my.yaml")
    assert load_hardware("mine").title == "My part"


def test_an_overlay_is_checked_whole(write: Write) -> None:
    path = write(MINE.replace("sources: [bench]", "sources: [bunch]"))
    remedy = "add it at the end of the file under `sources:`, as `bunch: {title: ..., kind: ...}`"
    assert refusal(path, "t4") == f"my.yaml: mine: sources: 'bunch' is not a known source; {remedy}"


BASED = """\
accelerators:
  slow-h100:
    base: H100 SXM5
    peak_flops_per_s: {fp8: null}
    memory: {bytes_per_s: 3.0e+12}
    link: null
    confidence: low
    sources: [nv_h100_ds]
"""


def test_base_hands_down_all_fields_but_the_evidence(write: Write) -> None:
    base = load_hardware("h100-sxm")
    part = load_hardware("slow-h100", hardware_file=write(BASED))
    assert part.memory_bytes_per_s == 3.0e12  # given
    assert (part.memory_bytes, part.memory_type) == (base.memory_bytes, "HBM3")  # beside it, from the base
    assert part.peak("bf16") == base.peak("bf16")
    assert part.peak("fp8").dtype == "bf16"  # taken away
    assert (part.link_type, part.link_bytes_per_s) == (None, None)
    assert (part.tdp_w, part.usd_per_hour, part.price_source) == (700, base.usd_per_hour, base.price_source)
    assert (part.aliases, part.measured, part.notes, part.checked) == ((), (), (), None)
    assert load_hardware("h100-sxm", hardware_file=write(BASED)) == base


def test_an_entry_may_be_based_on_the_one_it_overrides(write: Write) -> None:
    path = write(BASED.replace("slow-h100", "h100-sxm"))
    part = load_hardware("H100 SXM5", hardware_file=path)
    assert (part.name, part.memory_bytes_per_s, part.confidence) == ("h100-sxm", 3.0e12, "low")


def test_a_base_may_stand_in_the_same_file_or_the_one_below(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = BASED.replace("slow-h100", "slower").replace("H100 SXM5", "slow-h100").replace("3.0e", "2.0e")
    monkeypatch.setenv("SPECMATH_HARDWARE", str(write(BASED)))
    below = load_hardware("slower", hardware_file=write(child, "child.yaml"))
    monkeypatch.delenv("SPECMATH_HARDWARE")
    both = child + BASED.removeprefix("accelerators:\n")
    same = load_hardware("slower", hardware_file=write(both, "both.yaml"))
    assert (below.memory_bytes_per_s, below.memory_type) == (2.0e12, "HBM3")
    assert same == below


@pytest.mark.parametrize(
    ("base", "problem"),
    [
        ("h100", "base: unknown hardware 'h100'; say which: h100-pcie, h100-sxm, h100-nvl, slow-h100"),
        ("h100-smx", "base: unknown hardware 'h100-smx'; nearest: h100-sxm, h100-sxm5, h200-sxm, h200-sxm5"),
        ("slow-h100", "base: slow-h100 is in no file below this one; give the figures here"),
    ],
)
def test_a_base_that_cannot_be_found_is_refused(write: Write, base: str, problem: str) -> None:
    path = write(BASED.replace("H100 SXM5", base))
    assert refusal(path, "t4") == f"my.yaml: slow-h100: {problem}"


def test_bases_in_a_circle_are_refused(write: Write) -> None:
    entries = [f"  {name}: {{base: {base}}}\n" for name, base in (("a", "b"), ("b", "c"), ("c", "a"))]
    line = refusal(write("accelerators:\n" + "".join(entries)), "t4")
    assert line == "my.yaml: c: base: a → b → c → a goes round in a circle"


def test_a_long_chain_of_bases_is_refused(write: Write) -> None:
    entries = [f"  a{i}: {{base: a{(i + 1) % 2000}}}\n" for i in range(2000)]
    line = refusal(write("accelerators:\n" + "".join(entries)), "t4")
    assert line == "my.yaml: a16: base: is one base too many for a0: at most 16 in a chain"


def test_a_chain_of_16_bases_is_followed(write: Write) -> None:
    own = "confidence: low, sources: [nv_t4_ds]"
    entries = [f"  a{i}: {{base: a{i + 1}, {own}}}\n" for i in range(15)] + [f"  a15: {{base: t4, {own}}}\n"]
    part = load_hardware("a0", hardware_file=write("accelerators:\n" + "".join(entries)))
    assert part.peak("fp16") == load_hardware("t4").peak("fp16")


def entries_on_t4(count: int) -> str:
    own = "aliases: [b{0}, c{0}], base: t4, confidence: low, sources: [nv_t4_ds]"
    return "accelerators:\n" + "".join(f"  a{i}: {{{own.format(i)}}}\n" for i in range(count))


def test_a_file_holds_2000_entries_at_most(write: Write) -> None:
    path = write(entries_on_t4(2_001))
    assert refusal(path) == "my.yaml: accelerators: must be at most 2000, got 2001; split the file"
    path = write(entries_on_t4(2_000))
    assert load_hardware("c1999", hardware_file=path).aliases == ("b1999", "c1999")


def test_the_work_grows_no_faster_than_the_file(write: Write) -> None:
    """Counted in lines of Python that run, so that no clock decides."""
    run: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> Any:
        run.append(event)
        return note

    def lines(count: int) -> int:
        path, tracer = write(entries_on_t4(count)), sys.gettrace()
        run.clear()
        sys.settrace(note)
        try:
            load_hardware("t4", hardware_file=path)
        finally:
            sys.settrace(tracer)
        return len(run)

    assert lines(800) < 9 * lines(100)


# ---- names


def test_a_users_name_or_alias_goes_before_a_packaged_alias(write: Write) -> None:
    assert load_hardware("4090", hardware_file=write(MINE.replace("  mine:", '  "4090":'))).title == "My part"
    aliased = changed("    vendor: Me\n", "    vendor: Me\n    aliases: [gb10, My Part]\n")
    for name in ("GB10", "my-part"):
        assert load_hardware(name, hardware_file=write(aliased)).name == "mine"
    other = load_hardware("NVIDIA GB10", hardware_file=write(aliased))
    assert other.name == "dgx-spark-gb10"
    assert "gb10" in load_hardware("gb10").aliases
    assert "gb10" not in other.aliases  # it now means the other part


@pytest.mark.parametrize(
    ("alias", "problem"),
    [
        ("T4", "aliases: 'T4' already names t4"),
        ("MINE", "aliases: 'MINE' already names mine"),
        ("x, X", "aliases: 'X' already names mine"),
        ("'-'", "aliases: '-' needs a letter or digit"),
    ],
)
def test_an_alias_that_would_hide_a_name_is_refused(write: Write, alias: str, problem: str) -> None:
    path = write(changed("    vendor: Me\n", f"    vendor: Me\n    aliases: [{alias}]\n"))
    assert refusal(path) == f"my.yaml: mine: {problem}"


# ---- what is wrong in an entry


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("    vendor: Me\n", "", "vendor: is missing"),
        ("    vendor: Me\n", "    vendor:\n", "vendor: is missing"),
        ("vendor: Me", "vendor: [Me]", "vendor: must be a text, got a list"),
        ("vendor: Me", "vender: Me", "vender: unknown key; did you mean vendor?"),
        ("vendor: Me", 'vendor: "a\\eb"', r"vendor: must be a text of printable characters, got 'a\x1bb'"),
        ("kind: npu", "kind: nvidia", "kind: must be one of gpu, cpu, soc, apu, npu, tpu, got 'nvidia'"),
        ("confidence: low", "confidence: 0.9", "confidence: must be one of high, medium, low, got '0.9'"),
        ("bf16: 100 TFLOP/s", "bf16: 125e12", "peak_flops_per_s.bf16: YAML 1.1 reads 125e12 as text"),
        ("80 GiB", "0800", "memory.bytes: YAML 1.1 reads 0800 as an octal number; write 800"),
        ("80 GiB", '"80"', "memory.bytes: '80' is text, because of its quotes; write 80"),
        ("80 GiB", "80 GHz", "memory.bytes: '80 GHz' has no known unit"),
        ("80 GiB", "much", "memory.bytes: 'much' is not a number of B"),
        ("80 GiB", "yes", "memory.bytes: 'yes' is not a number of B"),
        ("80 GiB", ".nan", "memory.bytes: '.nan' is not a number of B"),
        ("80 GiB", "1.0e+999", "memory.bytes: must be finite, got 1.0e+999"),
        ("80 GiB", "-1", "memory.bytes: must be between 1e+06 and 1e+15, got -1; is a unit"),
        ("80 GiB", "0", "memory.bytes: must be between 1e+06 and 1e+15, got 0; is a unit"),
        ("80 GiB", "80", "memory.bytes: must be between 1e+06 and 1e+15, got 80; is a unit prefix missing"),
        ("80 GiB", "８０ GiB", "memory.bytes: '８０ GiB' is not a number of B"),
        ("80 GiB", "[80]", "memory.bytes: must be a number, got a list"),
        ('memory: {bytes: 80 GiB, bytes_per_s: "2 TB/s"}', "memory: 80 GiB", "memory: must be a mapping"),
        ('bytes_per_s: "2 TB/s"', "bandwidth: 2 TB/s", "memory.bandwidth: unknown key; known keys: bytes"),
        ("bf16: 100 TFLOP/s, fp8: 0.2 PFLOP/s", "bf16: 100.0", "peak_flops_per_s: 100 FLOP/s over 2e+12"),
        ("0.2 PFLOP/s", "1 PFLOP/s", "peak_flops_per_s: fp8 is 10 times bf16, outside 0.9 to 4.1"),
        ("    sources: [bench]\n", "", "sources: must say where the figures come from"),
        ("sources: [bench]", "sources: bench", "sources: must be a list, got 'bench'"),
        ("vendor: Me", "vendor: Me\n    checked: soon", "checked: must be a date like 2026-11 or 2026-11-30"),
        ("vendor: Me", "vendor: Me\n    release_year: 1.0e+300", "release_year: must be between 1980 and"),
        ("My part", "x" * 100_000, "title: must have at most 500 characters, got 100000"),
        (
            "vendor: Me",
            "vendor: Me\n    measured: [{what: gemm, dtype: fp12, flops_per_s: 1.0e+12, source: bench}]",
            "measured.dtype: must be one of fp32, tf32",
        ),
        ("vendor: Me", "vendor: Me\n    compute_units: 1.5", "compute_units: must be a whole number"),
        (
            "vendor: Me",
            "vendor: Me\n    link: {type: wire, bytes_per_s: 900.0e+9, marketed_bytes_per_s: 900.0e+9}",
            "link.bytes_per_s: must be one direction, 4.5e+11 B/s: marketed_bytes_per_s adds both",
        ),
        ("vendor: Me", "vendor: Me\n    link: {type: wire}", "link.bytes_per_s: is missing"),
        ("vendor: Me", "vendor: Me\n    price: {source: bench}", "price.usd_per_hour: is missing"),
        (
            "vendor: Me",
            "vendor: Me\n    measured: [{what: gemm, flops_per_s: 1.0e+12, source: bench}, {what: gemm}]",
            "measured 2: source: is missing",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_entry(write: Write, old: str, new: str, problem: str) -> None:
    assert refusal(write(changed(old, new))).startswith(f"my.yaml: mine: {problem}")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("accelerators: {My Part: {base: t4}}", "accelerators.My Part: write the name as my-part"),
        ('accelerators: {"-": {base: t4}}', "accelerators.-: needs a letter or digit"),
        ("accelerators: {mine: 5}", "accelerators.mine: must be a mapping of keys to values, got '5'"),
        ("sources: {}", "accelerators: is missing"),
        ("acelerators: {}", "acelerators: unknown key; did you mean accelerators?"),
        ("schema_version: 2\naccelerators: {}", "schema_version: must be 1, got 2"),
        (
            "accelerators: {}\nsources: {x: {title: x, kind: rumour}}",
            "sources.x.kind: must be one of vendor, table, measurement, report, derived, got 'rumour'",
        ),
        ("accelerators: {}\nsources: {x: {kind: table}}", "sources.x.title: is missing"),
    ],
)
def test_a_wrong_layout_is_named(write: Write, content: str, problem: str) -> None:
    assert refusal(write(content)).removeprefix("my.yaml: ") == problem


# ---- where the files come from


def test_an_installed_catalogue_goes_before_that_of_the_checkout(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "specmath").mkdir()
    monkeypatch.setattr(catalogue_files, "__file__", str(tmp_path / "specmath" / "catalogue_files.py"))
    write(MINE, "hardware.yaml")
    assert list(catalogue_files._packaged.__wrapped__().entries) == ["mine"]
    write(changed("  mine:\n", "  installed:\n"), "specmath/hardware.yaml")
    assert list(catalogue_files._packaged.__wrapped__().entries) == ["installed"]
