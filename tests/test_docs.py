"""Documents cannot go stale: outputs are rerun, versions and commands are compared."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import specmath
from specmath.calibration_files import read_calibration
from specmath.calibrations import Calibration

ROOT = Path(__file__).resolve().parent.parent
CALIBRATIONS = ROOT / "docs" / "calibrations"


def load_refresh() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFRESH = load_refresh()


@pytest.mark.parametrize("path", REFRESH.PAGES, ids=lambda path: path.name)
def test_command_outputs_are_fresh(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert REFRESH.refreshed(page) == page, "run `python docs/refresh.py`"


def test_refresh_notices_a_stale_output() -> None:
    page = "```console\n$ specmath tokens --alpha 0.5 --k 1 -f csv\nalpha\n```\n"
    fresh = REFRESH.refreshed(page)
    assert fresh != page
    assert "0.5,constant,1,0.0,1.5" in fresh
    assert REFRESH.refreshed(fresh) == fresh


def test_the_readme_shows_a_command_with_its_output() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "$ specmath speedup --alpha 0.7 --k 4 --batch 64" in readme


def test_ci_runs_the_readmes_test_command() -> None:
    command = "pip install -e '.[dev]' && python -m pytest"
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n{command}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dynamic"] == ["version"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    least = project["requires-python"].removeprefix(">=")
    assert f"Python ≥ {least}" in readme
    assert re.fullmatch(r"\d+\.\d+\.\d+", specmath.__version__)


def test_every_column_is_explained() -> None:
    from calibrate.plans import PlanTable
    from specmath.accuracy_tables import AccuracyTable, LeftOutTable, PointTable
    from specmath.calibration_tables import CalibrationTable, RunsTable
    from specmath.compatibility.table import CheckTable
    from specmath.crossovers import CrossoverTable
    from specmath.diagnosis.table import CauseTable, DiagnosisTable
    from specmath.engines.alpha_table import AlphaTable
    from specmath.flips import FlipTable
    from specmath.forecast import SpeedupTable
    from specmath.gates import GateTable
    from specmath.load_table import LoadTable
    from specmath.pass_table import PassTable
    from specmath.pools import PoolTable
    from specmath.schedule import ScheduleTable
    from specmath.token_yield import TokenTable

    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    asked = (CrossoverTable, FlipTable, SpeedupTable, PassTable, ScheduleTable, TokenTable)
    judged = (AlphaTable, CheckTable, DiagnosisTable, CauseTable)
    measured = (CalibrationTable, RunsTable, PlanTable, LoadTable, GateTable, PoolTable)
    for result in (*asked, *judged, *measured, AccuracyTable, LeftOutTable, PointTable):
        for key in result.keys:
            assert f"`{key}`" in page, key


def test_every_link_between_documents_leads_somewhere() -> None:
    for page in (*REFRESH.PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_errors_of_the_calibrations_are_those_of_their_files() -> None:
    page = (ROOT / "docs" / "calibrate.md").read_text(encoding="utf-8")
    row = r"\]\((calibrations/\S+\.yaml)\) \|.*\| (\d+), measured (\S+) to (\S+) \| (\S+) % \((\S+) %\) \|"
    told = re.findall(row, page)
    assert {name for name, *_ in told} == {f"calibrations/{one.name}" for one in CALIBRATIONS.glob("*.yaml")}
    for name, *figures in told:
        known = read_calibration(ROOT / "docs" / name)
        assert isinstance(known, Calibration)
        speedups = [one.speedup for one in known.proof]
        errors = sorted((one.error for one in known.proof), key=abs)
        typical, worst = f"{abs(errors[len(errors) // 2]):.1%}", f"{errors[-1]:+.1%}"
        assert figures[:3] == [str(len(errors)), f"{min(speedups):.2f}", f"{max(speedups):.2f}"]
        assert figures[3] == typical.removesuffix("%")
        assert figures[4] in (worst.removesuffix("%"), f"{errors[-1]:+.0%}".removesuffix("%"))
