"""What a calibration says of the machine it ran on."""

from __future__ import annotations

import pytest

from calibrate.machine import (
    catalogue_device,
    default_threads,
    free_bytes,
    load_advice,
    machine_facts,
    smi_facts,
    smi_values,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA H200", "h200-sxm"),
        ("AMD EPYC 9654 96-Core Processor", "epyc-9654"),
        ("NVIDIA H100", None),  # may be three
        ("AMD EPYC", None),
        ("", None),
    ],
)
def test_a_device_is_recognised_or_not_named(name: str, expected: str | None) -> None:
    assert catalogue_device(name) == expected


def test_facts_of_this_machine() -> None:
    facts = machine_facts("cpu", threads=1, dtype="fp32", attention="eager")
    assert {"device", "cpu", "cores", "load", "torch", "transformers", "system"} <= set(facts)
    assert (facts["threads"], facts["dtype"], facts["attention"]) == (1, "fp32", "eager")
    assert all(value != "" for value in facts.values())
    free = free_bytes("cpu")
    assert free is None or free > 2**20


def test_the_fields_of_nvidia_smi() -> None:
    assert smi_values("550.54, 345, 1980, 2619, 700.00, 31\n") == {
        "driver": "550.54",
        "sm_clock_mhz": 345.0,
        "sm_clock_max_mhz": 1980.0,
        "memory_clock_mhz": 2619.0,
        "power_limit_w": 700.0,
        "temperature_c": 31.0,
    }
    assert smi_values("550.54, [N/A], [Not Supported]\n") == {"driver": "550.54"}
    assert smi_values("") == {}


def test_a_machine_without_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert smi_facts() == {}


@pytest.mark.parametrize(
    ("cores", "torch_threads", "expected"),
    [(1, 1, 1), (2, 2, 1), (4, 2, 2), (4, 4, 3), (64, 32, 32), (64, 1, 1)],
)
def test_threads_leave_a_core(cores: int, torch_threads: int, expected: int) -> None:
    assert default_threads(cores, torch_threads) == expected


@pytest.mark.parametrize(
    ("load", "threads", "on_gpu", "warns"),
    [
        (0.0, 1, False, False),
        (1.4, 1, False, False),
        (1.6, 1, False, True),
        (8.2, 8, False, False),
        (8.2, 8, True, True),
    ],
)
def test_load_beyond_the_threads_is_warned_of(load: float, threads: int, on_gpu: bool, warns: bool) -> None:
    advice = load_advice(load, threads, on_gpu=on_gpu)
    assert (advice is not None) == warns
    assert advice is None or f"{load:.1f}" in advice.text
