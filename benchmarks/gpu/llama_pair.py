"""One GPU in eight minutes: a Llama pair of random weights in two regimes, and the device's own rates.

    python benchmarks/gpu/llama_pair.py OUT             on a GPU: Llama-3.1-8B and Llama-3.2-1B in bf16
    python benchmarks/gpu/llama_pair.py OUT --rehearse  on a CPU: small stand-ins, eager alone

Writes a calibration of each regime, its log, and `rates.json`: streaming bandwidth and the rate of one large
matrix product, which tell how far the passes are from what the device can do. Times need no real weights; the
proof decodes with coins of a stated acceptance.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from calibrate.machine import machine_facts, set_threads
from calibrate.opened import open_pair
from calibrate.requests import Request
from calibrate.run import calibrate_pair
from calibrate.timing import ClockTimer, CudaTimer, Timer, Work
from specmath.calibration_files import write_calibration
from specmath.calibration_tables import CalibrationTable
from specmath.tables import write

REPEATS = 20


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is measured on one kind of device.

    Attributes:
        target: The target.
        draft: The draft.
        device: Where.
        dtype: Of weights, cache and the rates.
        regimes: One calibration each.
        batches: Sequences.
        contexts: Tokens in the cache.
        stream_elements: Elements that are copied to time the memory.
        product: Rows and columns of the matrices whose product is timed.
    """

    target: str
    draft: str
    device: str
    dtype: str
    regimes: tuple[str, ...]
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    stream_elements: int
    product: int


GPU = Task(
    target="random:llama-3.1-8b",
    draft="random:llama-3.2-1b",
    device="cuda",
    dtype="bf16",
    regimes=("cuda-graph", "eager"),
    batches=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    contexts=(512, 8192),
    stream_elements=2**31,
    product=8192,
)
REHEARSAL = Task(
    target="random:llama-160m",
    draft="random:llama-68m",
    device="cpu",
    dtype="fp32",
    regimes=("eager",),
    batches=(1, 4),
    contexts=(128,),
    stream_elements=2**26,
    product=1024,
)


def main() -> None:
    """Measure, write, and say what came out."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("out", type=Path, help="folder for the files")
    options.add_argument("--rehearse", action="store_true", help="small models on a CPU")
    given = options.parse_args()
    task = REHEARSAL if given.rehearse else GPU
    given.out.mkdir(parents=True, exist_ok=True)
    rates = device_rates(task)
    (given.out / "rates.json").write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(rates))
    for regime in task.regimes:
        calibrated(task, regime, given.out)


def calibrated(task: Task, regime: str, out: Path) -> None:
    """One calibration, written and printed."""
    request = Request(
        target=task.target,
        draft=task.draft,
        device=task.device,
        dtype=task.dtype,
        regime=regime,
        batches=task.batches,
        contexts=task.contexts,
        ks=(2, 4),
        temperatures=(0.0,),
    )
    start = time.perf_counter()
    path = out / f"{task.target.partition(':')[2]}-{regime}.yaml"
    calibration = calibrate_pair(open_pair(request), path.with_suffix(".log.jsonl"), watch=spoken, fresh=True)
    write_calibration(calibration, path)
    print(f"\n{path.name}: {time.perf_counter() - start:.0f} s in all\n")
    write(
        CalibrationTable(calibration=calibration, k=request.ks, file=path.name),
        sys.stdout,
        "md",
        explain=True,
    )
    if task.device == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def spoken(what: str) -> Iterator[None]:
    """Names a piece of work, and says what it took."""
    start = time.perf_counter()
    print(f"{what} …", flush=True)
    yield None
    print(f"{what}: {time.perf_counter() - start:.0f} s", flush=True)


def device_rates(task: Task) -> dict[str, object]:
    """Bytes per second of a copy and FLOP per second of a product, beside what ran them."""
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[task.dtype]
    timer: Timer = CudaTimer(task.device) if task.device == "cuda" else ClockTimer()
    threads = set_threads()
    moved, copy_s = _copied(task, dtype, timer)
    matrix = torch.ones(task.product, task.product, dtype=dtype, device=task.device)
    product_s = _median_s(timer, lambda: matrix @ matrix)
    facts = machine_facts(task.device, threads=threads, dtype=task.dtype, attention="none")
    return {
        "copy_bytes_per_s": moved / copy_s,
        "product_flops_per_s": 2 * task.product**3 / product_s,
        "product_size": task.product,
        "machine": facts,
    }


def _copied(task: Task, dtype: torch.dtype, timer: Timer) -> tuple[int, float]:
    """Bytes that a copy reads and writes, and its seconds."""
    source = torch.ones(task.stream_elements, dtype=dtype, device=task.device)
    sink = torch.empty_like(source)
    return 2 * source.numel() * source.element_size(), _median_s(timer, lambda: sink.copy_(source))


def _median_s(timer: Timer, work: Work) -> float:
    for _ in range(3):
        work()
    return median(timer.seconds(work) for _ in range(REPEATS))


if __name__ == "__main__":
    main()
