"""What is not imported: floors import downwards only, and nothing heavy before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "specmath"

FLOORS = (
    {"errors"},
    {"checks", "evidence", "number_formats", "results", "units", "verdicts"},
    {"accelerator", "execution", "laws", "measured_speedups", "model"},
    {"model_counts"},
    {"acceptance"},
    {
        "additive",
        "estimation",
        "experts",
        "fitting",
        "kernels",
        "mixtures",
        "pass_laws",
        "ratios",
        "trees",
        "roofline",
        "scoring",
        "side_costs",
    },
    {"beta_fits", "clustered_errors", "counted_acceptance", "cut_bounds", "equilibria", "traffic"},
    {"acceptance_axis", "best_trees", "breakevens", "memory", "policies", "queueing", "strata"},
    {"latencies"},
    {"drafters", "profiles", "roofline_text", "sources"},
    {
        "anchor_distance",
        "arm_fits",
        "calibrations",
        "corrections",
        "k_lines",
        "measurements",
        "measuring",
        "mixed_steps",
    },
    {"calibration_text", "pass_columns", "pass_errors", "pass_flags", "pass_peaks"},
    {"pass_fits"},
    {
        "calibrated_acceptance",
        "calibration_contradictions",
        "corrected_steps",
        "measured_acceptance",
        "measured_passes",
        "measurement_doubts",
    },
    {"anchors", "calibration_limits"},
    {"adaptive", "additive_source", "calibrated_source", "prompt_costs", "roofline_source"},
    {"cautions", "load_policies", "profiled_source", "question_advice"},
    {"batch_policies", "critical_contexts", "diagnosis", "flip_inputs", "winning"},
    {"flips", "schedule_text"},
    {
        "comparisons",
        "crossover_text",
        "crossovers",
        "forecast",
        "speedup_grid",
        "pass_table",
        "schedule",
        "token_yield",
    },
    {"strict_json", "text_files", "yaml_fields"},
    {"append_log", "record_yaml", "row_files"},
    {"simulation"},
    {"load_levels"},
    {"load_arms"},
    {"load_reach"},
    {"load_verdicts"},
    {"load_text"},
    {"gates", "load_table", "pools"},
    {"loads"},
    {
        "axes",
        "batch_files",
        "calibration_files",
        "columns",
        "files",
        "hf",
        "measurement_files",
        "run_files",
        "strict_yaml",
        "trace_files",
    },
    {"catalogue_files"},
    {"catalogue", "exporters", "model_catalogue", "profile_catalogue"},
    {"engines"},
    {"compatibility"},
    {"calibration_tables", "hardware_tables", "model_tables", "profile_tables", "setups", "tables"},
    {"accuracy", "accuracy_tables"},
    {"cli"},
)
"""From the ground up. A module may import from lower floors, and from its own where the list allows it."""
GROUND_KNOWS = {"numpy"}
RUNS = Path(__file__).resolve().parent / "data" / "runs" / "tensorrt_llm_r1_mtp.csv"
HEAVY = ("numpy", "pandas", "yaml", "rich", "typer", "pyarrow", "torch", "jinja2", "matplotlib", "scipy")


def floor_of(module: str) -> int:
    (level,) = [level for level, modules in enumerate(FLOORS) if module in modules]
    return level


def modules() -> list[Path]:
    outside = (PACKAGE / "__init__.py", PACKAGE / "__main__.py")
    return sorted(path for path in PACKAGE.rglob("*.py") if path not in outside)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Every module imported anywhere in the file, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_every_module_stands_on_a_floor() -> None:
    rooms = {room_of(path) for path in modules()}
    assert rooms == set().union(*FLOORS)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path) -> None:
    room = room_of(path)
    for name in imports_of(path):
        if not name.startswith("specmath."):
            continue
        other = name.split(".")[1]
        assert other == room or floor_of(other) <= floor_of(room), f"{room} must not import {other}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_maths_knows_the_standard_library_and_numpy_alone(path: Path) -> None:
    if floor_of(room_of(path)) > floor_of("crossovers"):
        return
    outside = {name.split(".")[0] for name in imports_of(path)} - set(sys.stdlib_module_names) - {"specmath"}
    allowed = GROUND_KNOWS | ({"pandas"} if path.name == "results.py" else set())  # inside to_frame only
    assert outside <= allowed
    assert not {"os", "sys", "pathlib", "json"} & imports_of(path), "no files, no environment, no printing"


def test_no_module_bears_the_name_of_a_public_function() -> None:
    """The submodule would shadow the function in the lazy package once it is imported."""
    import specmath

    names = {path.stem for path in PACKAGE.glob("*.py")} | {path.name for path in PACKAGE.iterdir()}
    assert not names & set(specmath.__all__)


def loaded_by(code: str) -> set[str]:
    """Heavy modules in sys.modules after `code` ran in a fresh interpreter."""
    probe = f"import sys\ntry:\n    exec({code!r})\nexcept SystemExit:\n    pass\n"
    probe += f"print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


def command(line: str) -> str:
    return f"from specmath.cli import main; main({line.split()!r})"


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        pytest.param("import specmath", set(), id="import specmath"),
        pytest.param("import specmath; specmath.expected_tokens(.7, 4)", {"numpy"}, id="one formula"),
        pytest.param(command("--version"), {"typer"}, id="--version"),
        pytest.param(command("--help"), {"typer", "rich"}, id="--help"),
        pytest.param(command("speedup --help"), {"typer", "rich"}, id="speedup --help"),
        pytest.param("import calibrate", set(), id="import calibrate"),
        pytest.param(command("calibrate --help"), {"typer", "rich"}, id="calibrate --help"),
        pytest.param(
            command(f"calibrate --runs {RUNS} -f md"), {"typer", "numpy", "yaml"}, id="calibrate, runs"
        ),
        pytest.param(command("show hardware --help"), {"typer", "rich"}, id="show hardware --help"),
        pytest.param(command("tokens --alpha .7"), {"typer", "numpy"}, id="tokens"),
        pytest.param(command("speedup --alpha .7 --c .1 -f csv"), {"typer", "numpy"}, id="speedup, ratios"),
        pytest.param(command("speedup --alpha .7 -f md"), {"typer", "numpy", "yaml"}, id="speedup, md"),
        pytest.param(command("speedup --alpha .7 -f json"), {"typer", "numpy", "yaml"}, id="speedup, json"),
        pytest.param(command("crossover --alpha .7 -f csv"), {"typer", "numpy", "yaml"}, id="crossover, csv"),
        pytest.param(command("show hardware -f md"), {"typer", "numpy", "yaml"}, id="show hardware, md"),
        pytest.param(command("accuracy --left-out -f md"), {"typer", "numpy", "yaml"}, id="accuracy"),
        pytest.param(
            command("speedup --alpha .7 -f table"), {"typer", "numpy", "yaml", "rich"}, id="speedup, table"
        ),
        pytest.param(
            command("speedup --alpha .7 --target qwen3-32b --draft qwen3-0.6b -f md"),
            {"typer", "numpy", "yaml"},
            id="speedup, named models",
        ),
        pytest.param(command("show model llama-3.1-8b -f md"), {"typer", "numpy"}, id="show model"),
        pytest.param(  # pandas 3 imports pyarrow where it is installed
            command("tokens --alpha .7 -f html"), {"typer", "numpy", "pandas", "pyarrow"}, id="tokens, html"
        ),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code: str, allowed: set[str]) -> None:
    assert loaded_by(code) <= allowed


@pytest.mark.parametrize("line", ["speedup --alpha .7 --c .1 -f csv", "tokens --alpha .7 -f md"])
def test_a_question_without_a_source_reads_no_engine(line: str) -> None:
    readers = ("prometheus_client", *(f"specmath.engines.{name}" for name in ("recognition", "estimates")))
    probe = f"import sys\ntry:\n    exec({command(line)!r})\nexcept SystemExit:\n    pass\n"
    probe += f"print('loaded:', *[name for name in {readers!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["loaded:"]


def test_the_probe_can_fail() -> None:
    assert loaded_by("import numpy, yaml") == {"numpy", "yaml"}
