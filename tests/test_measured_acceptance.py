"""The acceptance of measurements: as a law, beside a law, and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specmath.acceptance import ConstantAcceptance, PositionAcceptance
from specmath.cli import run
from specmath.estimation import alpha_from_acceptance_length
from specmath.laws import AcceptanceLaw
from specmath.measured_acceptance import acceptance_contradiction, measured_law
from specmath.measurements import Measurement

PAIR = "k=3,batch=8,speedup=1.7,acceptance-length=2.29"
ALPHA = float(alpha_from_acceptance_length(2.29, 3))
SETUP = "--target llama-3.1-8b --draft llama-3.2-1b --context 1k"


def measured(lengths: dict[int, float], batch: int = 8) -> list[Measurement]:
    return [
        Measurement(k=k, batch=batch, acceptance_length=length, speedup=1.2) for k, length in lengths.items()
    ]


def asked(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    status = run([*line.split(), "-f", "json"])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    document: dict[str, Any] = json.loads(captured.out)
    return document


def codes(document: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in document["warnings"]]


# The law


def test_one_k_gives_one_alpha() -> None:
    law, told = measured_law(measured({3: 2.29}))
    assert isinstance(law, ConstantAcceptance)
    assert law.acceptance_length(3) == pytest.approx(2.29, rel=1e-9)
    assert told == f"α {ALPHA:.3g} from the measured acceptance length 2.29 at k 3"


def test_every_k_from_1_gives_the_survival() -> None:
    """E(k) − E(k − 1) = .8, .5, .25; repeats of one k are averaged."""
    pairs = [*measured({1: 1.8, 2: 2.2, 3: 2.55}), *measured({2: 2.4}, batch=16)]
    law, told = measured_law(pairs)
    assert isinstance(law, PositionAcceptance)
    assert law.survival(3) == pytest.approx([0.8, 0.5, 0.25], rel=1e-12)
    assert told == "survival 0.8/0.5/0.25 from the acceptance lengths measured at k 1 to 3"


@pytest.mark.parametrize(
    ("lengths", "longest"),
    [
        pytest.param({1: 1.8, 3: 2.5}, 3, id="a k between was not measured"),
        pytest.param({1: 1.8, 2: 2.3}, 5, id="a longer draft is asked about"),
        pytest.param({1: 1.5, 2: 2.4}, 2, id="survival would rise"),
        pytest.param({1: 1.8, 2: 1.7}, 2, id="survival would be negative"),
    ],
)
def test_elsewhere_the_largest_k_gives_one_alpha(lengths: dict[int, float], longest: int) -> None:
    law, told = measured_law(measured(lengths), longest_k=longest)
    last = max(lengths)
    assert isinstance(law, ConstantAcceptance)
    assert law.acceptance_length(last) == pytest.approx(lengths[last], rel=1e-9)
    assert told.endswith(f"at k {last}, the largest of 2 k measured")


@pytest.mark.parametrize(
    ("laws", "missed"),
    [
        ([ConstantAcceptance(ALPHA)], None),
        ([ConstantAcceptance(0.69)], None),  # 2.49; a tenth above 2.29 is 2.52
        ([ConstantAcceptance(0.7)], "E = 2.53"),
        ([ConstantAcceptance(0.75)], "E = 2.73"),
        ([ConstantAcceptance(0.4)], "E = 1.62"),
        ([ConstantAcceptance(np.array([0.4, ALPHA, 0.9]))], None),
        ([ConstantAcceptance(0.4), ConstantAcceptance(0.5)], "E = 1.88"),
        ([PositionAcceptance((0.9, 0.9))], None),
        ([], None),
    ],
)
def test_a_law_that_contradicts_the_measured_acceptance_is_told(
    laws: list[AcceptanceLaw], missed: str | None
) -> None:
    found = acceptance_contradiction(laws, measured({3: 2.29}))
    assert len(found) == (missed is not None)
    assert all(f"{missed} at k 3, and 2.29 was measured" in advice.text for advice in found)


# On the command line


@pytest.mark.parametrize(
    "command", ["speedup --batch 8", "crossover --batch 8", "crossover --batch 8 --flips"]
)
def test_a_measurement_brings_acceptance_and_k(capsys: pytest.CaptureFixture[str], command: str) -> None:
    document = asked(capsys, f"{command} {SETUP} --measured {PAIR}")
    row = document["rows"][0]
    assert (row["case"], row["k"]) == ("measured", 3)
    assert row["alpha"] == pytest.approx(ALPHA, rel=1e-9)
    assert row["speedup"] == pytest.approx(1.7, rel=1e-9)
    told = f"α {ALPHA:.3g} from the measured acceptance length 2.29 at k 3"
    assert told in document["assumptions"][: 4 if "flips" in command else 3]


def test_a_typed_k_and_a_typed_acceptance_stay(capsys: pytest.CaptureFixture[str]) -> None:
    line = f"speedup {SETUP} --batch 8 --measured {PAIR}"
    assert [row["k"] for row in asked(capsys, f"{line} --k 5,6 --case measured")["rows"]] == [5, 6]
    typed = asked(capsys, f"{line} --alpha 0.65 --case measured")
    assert (typed["rows"][0]["alpha"], typed["rows"][0]["k"]) == (0.65, 4)
    assert not any("measured acceptance length" in told for told in typed["assumptions"])
    assert "acceptance-contradicts-the-measured" not in codes(typed)
    assert "acceptance-contradicts-the-measured" in codes(asked(capsys, f"{line} --alpha 0.9"))


def test_a_schedule_takes_the_measured_acceptance(capsys: pytest.CaptureFixture[str]) -> None:
    document = asked(capsys, f"schedule {SETUP} --batches 1,8 --measured {PAIR}")
    assert any(f"α {ALPHA:.3g} from the measured" in told for told in document["assumptions"])
    series = "".join(
        f" --measured k={k},batch=8,speedup=1.5,acceptance-length={e}" for k, e in ((1, 1.8), (2, 2.3))
    )
    document = asked(capsys, f"schedule {SETUP} --batches 1,8{series}")
    assert any("survival 0.8/0.5 from" in told for told in document["assumptions"])
    document = asked(capsys, f"schedule {SETUP} --batches 1,8 --k-max 4{series}")
    assert any("the largest of 2 k measured" in told for told in document["assumptions"])


def test_a_file_from_stdin_is_read_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"k": 3, "batch": 8, "speedup": 1.7, "acceptance_length": 2.29}\n', encoding="utf-8")
    with path.open(encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        rows = asked(capsys, f"speedup --batch 8 {SETUP} --measured -")["rows"]
    assert rows[0]["speedup"] == pytest.approx(1.7, rel=1e-9)


def test_a_lookup_takes_the_acceptance_once_matched(capsys: pytest.CaptureFixture[str]) -> None:
    """E = 1.9 with a match in every second step: 2.8 once matched."""
    line = "speedup --batch 8 --target llama-3.1-8b --context 1k --match-rate 0.5 --measured"
    document = asked(capsys, f"{line} k=4,batch=8,speedup=1.3,acceptance-length=1.9")
    assert document["rows"][0]["acceptance_length"] == pytest.approx(1.9, rel=1e-9)
    assert any("once matched: α" in told and "2.8 at k 4" in told for told in document["assumptions"])
    assert run(f"{line} k=4,batch=8,speedup=1.3,acceptance-length=3.5".split()) == 2
    assert "--match-rate: 0.5 is too small" in capsys.readouterr().err


def test_without_any_acceptance_the_measurement_is_asked_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"speedup --batch 8 {SETUP} --measured k=3,speedup=1.7".split()) == 2
    assert "acceptance-length: is missing; add it to the measurement" in capsys.readouterr().err
