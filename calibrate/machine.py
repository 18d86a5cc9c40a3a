"""What a calibration ran on: device, threads, load, clocks and versions, and the catalogue's name of it.

torch is imported where it is asked about. What cannot be found out is left out, never guessed.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from specmath.catalogue import load_hardware
from specmath.errors import UnknownNameError
from specmath.results import Advice

if TYPE_CHECKING:
    import torch

Facts = dict[str, str | float | int]

_CPU_INFO: Final = Path("/proc/cpuinfo")
_MEMORY_INFO: Final = Path("/proc/meminfo")
_SMI_TIMEOUT_S: Final = 10
_SMI_FIELDS: Final = {
    "driver": "driver_version",
    "sm_clock_mhz": "clocks.sm",
    "sm_clock_max_mhz": "clocks.max.sm",
    "memory_clock_mhz": "clocks.mem",
    "power_limit_w": "power.limit",
    "temperature_c": "temperature.gpu",
}
_LOAD_SLACK: Final = 0.5
"""Load beyond the own threads that is put down to the system itself."""


def machine_facts(device: torch.device | str, *, threads: int, dtype: str, attention: str) -> Facts:
    """What runs the passes: names, versions, threads, load, clocks.

    Args:
        device: Where the models run.
        threads: As `set_threads` set them.
        dtype: Of weights and cache.
        attention: Kernel of the attention, as the loaded model says.
    """
    import torch
    import transformers

    device = torch.device(device)
    facts: Facts = {"device": device_name(device), "dtype": dtype, "attention": attention, "threads": threads}
    facts |= {"cpu": cpu_name(), "cores": usable_cores(), "load": round(load_average(), 2)}
    facts |= {"python": platform.python_version(), "torch": torch.__version__}
    facts |= {"transformers": transformers.__version__, "system": f"{platform.system()} {platform.release()}"}
    if device.type == "cuda":
        facts |= {"cuda": str(torch.version.cuda or torch.version.hip)}
        facts |= smi_facts(str(getattr(torch.cuda.get_device_properties(device), "uuid", "")))
    if known := catalogue_device(device_name(device)):
        facts["hardware"] = known
    return facts


def device_name(device: torch.device | str) -> str:
    """Name of a device as its driver gives it; of a CPU, its model."""
    import torch

    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def catalogue_device(name: str) -> str | None:
    """The catalogue's name of a device; None where it is not in there or may be several.

    >>> catalogue_device("NVIDIA H100 80GB HBM3"), catalogue_device("NVIDIA H100")
    ('h100-sxm', None)
    """
    try:
        return load_hardware(name).name
    except UnknownNameError:
        return None


def free_bytes(device: torch.device | str) -> float | None:
    """Memory that can be allocated now; None where the system does not tell."""
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return available_memory(_text(_MEMORY_INFO))


def available_memory(meminfo: str) -> float | None:
    """Bytes that /proc/meminfo calls available.

    >>> available_memory("MemTotal: 16 kB\\nMemAvailable:    8 kB\\n")
    8192.0
    """
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return float(match[1]) * 1024 if match else None


def cpu_name() -> str:
    """Model of the processor."""
    match = re.search(r"^model name\s*:\s*(.+)$", _text(_CPU_INFO), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load_average() -> float:
    """Processes that ran or waited over the last minute; 0 where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def default_threads(cores: int, torch_threads: int) -> int:
    """Threads of a calibration on a CPU: those that torch would take, but one core less than there are.

    The threads of a product wait for the slowest of them. As soon as anything else wants a core, one thread
    stands still, and the rest with it: on two cores, two threads beside one other process were measured
    several times slower than one.

    >>> default_threads(2, 2), default_threads(32, 16), default_threads(1, 1), default_threads(64, 1)
    (1, 16, 1, 1)
    """
    return max(1, min(torch_threads, cores - 1))


def set_threads(threads: int | None = None) -> int:
    """Set the threads of torch and return their number; None for `default_threads`."""
    import torch

    chosen = threads or default_threads(usable_cores(), torch.get_num_threads())
    torch.set_num_threads(chosen)
    return chosen


def load_advice(load: float, threads: int, *, on_gpu: bool = False) -> Advice | None:
    """A warning where other work ran beside the own threads; None where the load is explained.

    >>> load_advice(1.2, 1) is None, load_advice(3.1, 1).code
    (True, 'busy-machine')
    """
    own = 1 if on_gpu else threads  # launching kernels keeps one thread busy
    if load <= own + _LOAD_SLACK:
        return None
    text = (
        f"{load:.1f} processes wanted a core before the measurement, which itself wants {own}: other work ran"
    )
    return Advice(code="busy-machine", text=text, remedy="stop other work and repeat")


def smi_facts(uuid: str = "") -> Facts:
    """Driver, clocks, power limit and temperature as nvidia-smi tells them; empty without it."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_SMI_FIELDS.values())}", "--format=csv,noheader,nounits"]
    if uuid:
        command += ["-i", uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return smi_values(done.stdout)


def smi_values(line: str) -> Facts:
    """The values of one line of nvidia-smi, in the order of the fields; what it does not know is left out.

    >>> smi_values("550.54.15, 1980, 1980, 2619, 700.00, [N/A]\\n")["power_limit_w"]
    700.0
    """
    values = (value.strip() for value in next(iter(line.splitlines()), "").split(","))
    read: Mapping[str, str] = dict(zip(_SMI_FIELDS, values, strict=False))
    return {name: _value(name, value) for name, value in read.items() if value and not value.startswith("[")}


def _value(name: str, value: str) -> str | float:
    is_figure = name != "driver" and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value)
    return float(value) if is_figure else value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
