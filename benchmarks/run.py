"""Start-up and grids, each as a ratio to something simple that ran in the same minute on the same machine.

    python benchmarks/run.py            all
    python benchmarks/run.py startup    one of startup, grid, roofline, parquet

CPU seconds, not wall-clock: a busy machine stretches both sides of a ratio alike. Each figure is the smallest
of several runs, taken in turn with its reference.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

RUNS = 11
Work = TypeVar("Work")


def startup() -> Iterator[str]:
    """Whole commands against `import numpy` in a fresh interpreter."""
    specmath = [sys.executable, "-c", "from specmath.cli import main; main()"]
    job = ["speedup", "--alpha", "0.7", "--k", "4", "--batch", "64"]
    commands = {
        "import numpy": [sys.executable, "-c", "import numpy"],
        "specmath --help": [*specmath, "--help"],
        "specmath tokens -f md": [*specmath, "tokens", "--alpha", "0.7", "-f", "md"],
        "specmath speedup -f md": [*specmath, *job, "-f", "md"],
        "specmath speedup -f table": [*specmath, *job, "-f", "table"],
        "specmath speedup, named models": [
            *specmath,
            *job,
            "--target",
            "qwen3-32b",
            "--draft",
            "qwen3-0.6b",
            "-f",
            "md",
        ],
        "specmath crossover -f md": [*specmath, "crossover", "--alpha", "0.7", "-f", "md"],
        "specmath show hardware -f md": [*specmath, "show", "hardware", "-f", "md"],
    }
    bars = {"specmath speedup -f md": 2.0, "specmath speedup -f table": 2.5}
    taken = {name: min(times) for name, times in _in_turn(commands, _cpu_of_command).items()}
    reference = taken["import numpy"]
    for name, seconds in taken.items():
        yield _line(name, seconds, seconds / reference, "import numpy", bars.get(name))


def grid() -> Iterator[str]:
    """A million speed-ups against `x ** y` on float arrays of that grid."""
    import numpy as np

    import specmath

    alphas, ks, batches = np.linspace(0.01, 0.99, 625), np.arange(1, 9), np.arange(1, 201)
    flat = [axis.ravel() for axis in np.meshgrid(alphas, ks, batches, indexing="ij")]
    alpha, k, batch = flat
    exponent = k.astype(float)
    pair = specmath.roofline_cases(
        specmath.load_hardware("h100-sxm"),
        specmath.model_from_counts("70B"),
        specmath.DraftModel(specmath.model_from_counts("1B")),
    )
    law = specmath.ConstantAcceptance(alphas)

    def flat_formula() -> None:
        cost = pair[0].step_cost(k, batch, 0)
        specmath.speedup(alpha, k, draft_cost=cost.draft_cost, verify_cost=cost.verify_cost, overhead=0)

    def broadcast_formula() -> None:
        cost = pair[0].step_cost(ks[:, None], batches, 0)
        specmath.speedup(
            alphas[:, None, None],
            ks[:, None],
            draft_cost=cost.draft_cost,
            verify_cost=cost.verify_cost,
            overhead=0,
        )

    def table_of_speedups() -> None:
        specmath.forecast_speedup(law, ks, batches, cases=pair[:1]).speedups()

    def whole_table() -> None:
        table = specmath.forecast_speedup(law, ks, batches, cases=pair[:1])
        for _ in table.chunks():
            pass

    work: dict[str, Callable[[], object]] = {
        "x ** y": lambda: alpha**exponent,
        "speed-ups, broadcast formula": broadcast_formula,
        "speed-ups, table.speedups()": table_of_speedups,
        "speed-ups, formula on flat arrays": flat_formula,
        "speed-ups, table with its 20 columns": whole_table,
    }
    taken = {name: min(times) for name, times in _in_turn(work, _cpu_of_call).items()}
    bars = {"speed-ups, broadcast formula": 10.0, "speed-ups, table.speedups()": 10.0}
    for name, seconds in taken.items():
        yield _line(name, seconds, seconds / taken["x ** y"], "x ** y", bars.get(name))


def roofline() -> Iterator[str]:
    """A million roofline speed-ups of a mixture of experts against `x ** y` on float arrays of that grid."""
    import numpy as np

    import specmath

    ks, batches, contexts = np.arange(1, 9), np.arange(1, 251), np.linspace(0, 32_000, 500)
    pair = specmath.roofline_cases(
        specmath.load_hardware("h100-sxm"),
        specmath.load_model("qwen3-30b-a3b"),
        specmath.DraftModel(specmath.load_model("qwen3-0.6b")),
        layout=specmath.Layout(tp=8),
        efficiency=specmath.Efficiency(sharpness=4),
    )
    law = specmath.ConstantAcceptance(0.7)
    grid = np.broadcast_to(contexts, (ks.size, batches.size, contexts.size)) / 32_000
    exponent = np.broadcast_to(ks[:, None, None].astype(float), grid.shape).copy()
    base = grid.copy()

    def speedups() -> None:
        specmath.forecast_speedup(law, ks, batches, cases=pair[:1], context=contexts).speedups()

    work: dict[str, Callable[[], object]] = {"x ** y": lambda: base**exponent, "roofline speed-ups": speedups}
    taken = {name: min(times) for name, times in _in_turn(work, _cpu_of_call).items()}
    bars = {"roofline speed-ups": 20.0}
    for name, seconds in taken.items():
        yield _line(name, seconds, seconds / taken["x ** y"], "x ** y", bars.get(name))


def parquet() -> Iterator[str]:
    """Ten million rows to Parquet: the peak of memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "grid.parquet"
        line = (
            # 10,000 × 8 × 42 cells in three cases are 10.08 million rows
            f"speedup --alpha 0.0001:1:0.0001 --k 1:8 --batch 1:42 -o {path}"
        )
        code = f"from specmath.cli import main; main({line.split()!r})"
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        seconds = time.perf_counter() - start
        size = path.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    yield f"rows to Parquet: {seconds:.0f} s, {size / 1e6:.0f} MB, peak memory {peak / 2**30:.2f} GiB (bar 1)"


def _in_turn(work: dict[str, Work], measure: Callable[[Work], float]) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(RUNS):
        for name, job in work.items():
            taken[name].append(measure(job))
    return taken


def _cpu_of_command(command: list[str]) -> float:
    # With cached bytecode, as an installed package runs: the first of the runs writes it.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _cpu_of_call(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def _line(name: str, seconds: float, ratio: float, reference: str, bar: float | None) -> str:
    limit = "" if bar is None else f" (bar {bar:g})"
    return f"{name:40} {seconds * 1e3:8.1f} ms {ratio:6.2f} × {reference}{limit}"


SUITES = {"startup": startup, "grid": grid, "roofline": roofline, "parquet": parquet}

if __name__ == "__main__":
    for suite in sys.argv[1:] or SUITES:
        print(f"# {suite}")
        for line in SUITES[suite]():
            print(line, flush=True)
