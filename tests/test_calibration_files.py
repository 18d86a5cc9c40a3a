"""Calibrations as files: exact round trips, what other YAML readers make of them, and hostile ones."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from specmath.calibration_contradictions import RULES
from specmath.calibration_files import read_calibration, write_calibration
from specmath.calibrations import (
    METHODS,
    PARTS,
    REGIMES,
    AcceptanceRow,
    Calibration,
    Cell,
    FittedConstant,
    Flag,
    MeasuredRuns,
    PartFit,
    Place,
    ProofRow,
    RunLine,
)
from specmath.errors import AccessError, DataError, InputError
from specmath.measurements import Measurement
from specmath.pass_laws import DraftLaw, HostLaw, PassLaw
from specmath.results import Advice

words = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)
texts = st.lists(words, min_size=1, max_size=4).map(" ".join)
keys = texts.filter(lambda text: text != "<<")
seconds = st.floats(1e-9, 1e5)
reads = st.floats(1e-6, 1e-1)
constants_s = st.just(0.0) | st.floats(1e-9, 1e-6)
factors = st.floats(1 / 99, 99)
shares = st.floats(0, 1)
small = st.floats(0, 1e6)
places = st.builds(
    Place,
    part=st.sampled_from(PARTS),
    batch=st.integers(1, 4096),
    width=st.integers(1, 64),
    context=st.integers(0, 10**6),
)


@st.composite
def cells(draw: st.DrawFn, known: Calibration) -> tuple[Cell, ...]:
    """Cells that the laws miss by less than two orders of magnitude."""
    found = [Place(part="target", batch=1, width=1, context=0), *draw(st.lists(places, max_size=6))]
    made = []
    for place in sorted(set(found), key=lambda place: PARTS.index(place.part)):
        law_s = float(known.law_s(place.part, place.batch, place.width, place.context))
        if law_s:
            misses = sorted(draw(st.tuples(factors, factors, factors)))
            low, middle, high = (float(max(law_s * miss, 1e-9)) for miss in misses)
            made.append(
                Cell(place=place, seconds=middle, low_s=low, high_s=high, repeats=draw(st.integers(1, 999)))
            )
    return tuple(made)


@st.composite
def acceptance_rows(draw: st.DrawFn) -> AcceptanceRow:
    reached = sorted(draw(st.lists(st.integers(0, 500), min_size=1, max_size=8)), reverse=True)
    decoded = draw(st.booleans())
    rule = draw(st.sampled_from(list(RULES)))
    alpha = reached[0] / 500
    return AcceptanceRow(
        rule=rule,
        temperature=draw(st.floats(0, 2)),
        top_p=draw(shares),
        domain=draw(texts),
        positions=draw(st.integers(0, 10**6)),
        requests=draw(st.integers(0, 999)),
        alpha=alpha if not decoded else draw(st.none() | st.just(alpha)),
        alpha_low=draw(st.none() | st.floats(0, alpha)),
        alpha_high=draw(st.none() | st.floats(alpha, 1)),
        lossless=RULES[rule] is not False,
        k=len(reached) if decoded else None,
        drafts=500 if decoded else None,
        accepted_at=tuple(reached) if decoded else (),
        context=draw(st.none() | st.floats(0, 1e6)),
    )


@st.composite
def proof_rows(draw: st.DrawFn) -> ProofRow:
    k = draw(st.integers(1, 16))
    return ProofRow(
        batch=draw(st.integers(1, 999)),
        k=k,
        context=draw(st.floats(0, 1e6)),
        acceptance_length=draw(st.floats(1, k + 1)),
        plain_s=draw(seconds),
        step_s=draw(seconds),
        predicted_plain_s=draw(seconds),
        predicted_step_s=draw(seconds),
    )


advice = st.builds(Advice, code=texts, text=texts, remedy=texts, until_measured=st.booleans())
constants = st.builds(
    FittedConstant, name=texts, value=small, standard_error=st.none() | small, largest_share=shares
)
errors = st.lists(st.floats(-0.99, 10), max_size=30).map(tuple)
fits = st.builds(
    PartFit,
    part=st.sampled_from(PARTS),
    constants=st.lists(constants, max_size=3).map(tuple),
    errors=errors,
    left_out_errors=errors,
    flags=st.lists(st.builds(Flag, place=places, kind=texts, ratio=small), max_size=2).map(tuple),
)
machines = st.dictionaries(keys, texts | st.floats(-1e9, 1e9) | st.integers(-(2**53), 2**53), max_size=5)
of_laws = st.builds(
    Calibration,
    target=texts,
    draft=texts,
    method=st.sampled_from(METHODS),
    regime=st.sampled_from(REGIMES),
    dtype=texts,
    machine=machines,
    cells=st.just(()),
    target_law=st.builds(
        PassLaw,
        weights_s=reads,
        compute_s_per_token=constants_s,
        kv_s_per_token=st.just(0.0) | st.floats(1e-12, 1e-9),
        kv_reread=shares,
        fixed_s=reads,
        sharpness=st.floats(1, 32),
        experts_s=reads,
        expert_counts=st.just((128, 8)),
        single_token_s=st.none() | reads,
    ),
    draft_law=st.builds(DraftLaw, fixed_s=constants_s, s_per_sequence=constants_s, round_s=constants_s),
    plain_host=st.builds(HostLaw, fixed_s=constants_s),
    step_host=st.builds(HostLaw, fixed_s=constants_s, s_per_sequence=constants_s, s_per_token=constants_s),
    fits=st.lists(fits, max_size=2).map(tuple),
    acceptance=st.lists(acceptance_rows(), max_size=3).map(tuple),
    proof=st.lists(proof_rows(), max_size=2).map(tuple),
    last_captured_tokens=st.none() | st.integers(1, 4096),
    match_rate=shares,
    skipped=st.lists(st.tuples(places, texts), max_size=2).map(tuple),
    warnings=st.lists(advice, max_size=2).map(tuple),
    created=texts,
    specmath_version=texts,
)


@st.composite
def calibrations(draw: st.DrawFn) -> Calibration:
    known = draw(of_laws)
    return replace(known, cells=draw(cells(known)))


measured_runs = st.builds(
    MeasuredRuns,
    source=texts,
    origin=st.sampled_from(["server", "runs", "history"]),
    machine=machines,
    runs=st.lists(
        st.builds(
            Measurement,
            k=st.integers(1, 9),
            batch=st.integers(1, 999),
            acceptance_length=st.floats(1, 2),
            context=st.floats(0, 1e6),
            plain_s=st.none() | st.floats(1e-8, 1e5),
            speculative_s=st.floats(1e-8, 1e5),
            where=st.just("") | texts,
        ),
        max_size=3,
    ).map(tuple),
    lines=st.lists(
        st.builds(
            RunLine,
            batch=st.floats(1, 999),
            context=st.floats(0, 1e6),
            intercept_s=st.floats(-1, 1),
            slope_s=st.floats(-1, 1),
            plain_s=st.none() | seconds,
            worst_error=small,
            worst_left_out=st.none() | small,
        ),
        max_size=2,
    ).map(tuple),
    warnings=st.lists(advice, max_size=2).map(tuple),
    created=texts,
    specmath_version=texts,
)


@settings(max_examples=150)
@given(record=calibrations() | measured_runs)
def test_what_is_written_is_read_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, record: Calibration | MeasuredRuns
) -> None:
    path = tmp_path_factory.mktemp("file") / "h100.yaml"
    write_calibration(record, path)
    assert read_calibration(path) == record


@settings(max_examples=50)
@given(record=calibrations())
def test_other_readers_of_yaml_find_numbers_where_numbers_are(
    tmp_path_factory: pytest.TempPathFactory, record: Calibration
) -> None:
    path = tmp_path_factory.mktemp("file") / "h100.yaml"
    write_calibration(record, path)
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert document["laws"]["draft"].get("fixed_s", 0.0) == record.draft_law.fixed_s
    assert document["cells"]["target"][0][3] == record.cells[0].seconds
    assert document.get("machine", {}) == record.machine


def by_hand(**changes: Any) -> Calibration:
    law = PassLaw(weights_s=8e-3, compute_s_per_token=1e-6)
    cell = Cell(
        place=Place(part="target", batch=1, width=1, context=512),
        seconds=8.1e-3,
        low_s=8e-3,
        high_s=8.2e-3,
        repeats=20,
    )
    made = Calibration(
        target="llama",
        draft="little",
        method="draft-model",
        regime="eager",
        dtype="bfloat16",
        machine={"device": "NVIDIA H100", "threads": 2, "load": 0.5},
        cells=(cell,),
        target_law=law,
        draft_law=DraftLaw(fixed_s=1e-3),
    )
    return replace(made, **changes)


def test_the_file_explains_itself_and_keeps_a_cell_to_a_line(tmp_path: Path) -> None:
    path = tmp_path / "h100.yaml"
    write_calibration(by_hand(), path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# What single passes of llama and little take")
    assert any("specmath speedup --measured h100.yaml" in line for line in lines[:5])
    assert "    - [1, 1, 512, 0.0081, 0.008, 0.0082, 20]" in lines
    assert "  target: {weights_s: 0.008, compute_s_per_token: 1.0e-06}" in lines
    assert max(map(len, lines)) <= 110


def test_a_grid_of_two_thousand_cells_fits(tmp_path: Path) -> None:
    many = tuple(
        Cell(
            place=Place(part="target", batch=1 + number // 50, width=1 + number % 50, context=131072),
            seconds=math.pi * 1e-3,
            low_s=math.e * 1e-3,
            high_s=math.sqrt(11) * 1e-3,
            repeats=100,
        )
        for number in range(2000)
    )
    misses = tuple(math.sin(number) / 7 for number in range(2000))
    fit = PartFit(part="target", constants=(), errors=misses, left_out_errors=(*misses[:-1], math.nan))
    record = by_hand(cells=many, fits=(fit,))
    write_calibration(record, tmp_path / "big.yaml")
    found = read_calibration(tmp_path / "big.yaml")
    assert isinstance(found, Calibration)
    assert found.cells == many
    assert found.fits[0].errors == misses
    assert math.isnan(found.fits[0].left_out_errors[-1])


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(InputError, match=r"^cells: make .* bytes, at most 1,048,576"):
        write_calibration(by_hand(cells=by_hand().cells * 40_000), path)
    assert path.read_text(encoding="utf-8") == "old"
    with pytest.raises(AccessError, match="the folder does not exist"):
        write_calibration(by_hand(), tmp_path / "nowhere" / "x.yaml")


def test_texts_that_yaml_would_not_take_are_mended(tmp_path: Path) -> None:
    odd = by_hand(
        target="a\x1b[31m\nb", draft="", machine={"yes": "null", "a key": "1.5", "n": 1, "x": "x" * 900}
    )
    write_calibration(odd, tmp_path / "odd.yaml")
    found = read_calibration(tmp_path / "odd.yaml")
    assert isinstance(found, Calibration)
    assert (found.target, found.draft) == ("a?[31m b", "-")
    assert found.machine == {"yes": "null", "a key": "1.5", "n": 1, "x": "x" * 499 + "…"}


GOOD = """\
schema: specmath.calibration/1
kind: passes
target: llama
draft: little
method: draft-model
regime: eager
dtype: bfloat16
machine:
  device: cpu
laws:
  target: {weights_s: 0.008, compute_s_per_token: 1.0e-06}
  draft: {fixed_s: 0.001}
acceptance:
  - {rule: rejection sampling, temperature: 1.0, top_p: 1.0, domain: all, positions: 9, requests: 3,
     alpha: 0.7}
  - {rule: rejection sampling, temperature: 1.0, top_p: 1.0, domain: all, positions: 9, requests: 3,
     k: 2, drafts: 9, accepted_at: [8, 5]}
proof:
  - {batch: 1, k: 2, context: 512, acceptance_length: 2.4, plain_s: 0.008, step_s: 0.01,
     predicted_plain_s: 0.008, predicted_step_s: 0.0101}
fits:
  - part: target
    errors: [0.1, -0.1]
cells:
  target:
    - [1, 1, 512, 0.0081, 0.0080, 0.0082, 20]
    - [1, 4, 512, 0.0082, 0.0081, 0.0083, 20]
"""
RUNS = """\
schema: specmath.calibration/1
kind: runs
source: http://localhost:8000
origin: server
runs:
  - {k: 3, batch: 8, acceptance_length: 2.5, plain_s: 0.012, speculative_s: 0.008}
"""


def refusal(tmp_path: Path, content: str) -> str:
    path = tmp_path / "my.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_calibration(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def test_the_file_that_is_broken_below_is_sound(tmp_path: Path) -> None:
    for content, kind in ((GOOD, Calibration), (RUNS, MeasuredRuns)):
        path = tmp_path / "my.yaml"
        path.write_text(content, encoding="utf-8")
        assert isinstance(read_calibration(path), kind)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("calibration/1", "calibration/2", "schema: specmath.calibration/2 is newer than what this specmath"),
        ("schema: specmath.calibration/1\n", "", "schema: is missing; a calibration begins with"),
        ("calibration/1", "calibration/one", "schema: got 'specmath.calibration/one'; a calibration begins"),
        ("kind: passes", "kind: steps", "kind: must be passes or runs, got 'steps'"),
        ("kind: passes\n", "", "kind: is missing"),
        ("compute_s_per_token: 1.0e-06}", "compute_s_per_token: 1.0e+308}",
         "laws.target.compute_s_per_token: must be between 0 and 100000, got 1e+308"),
        ("rejection sampling", "rejection samping",
         "acceptance 1: rule: 'rejection samping' is no acceptance rule; did you mean 'rejection sampling'?"),
        ("rejection sampling", "hope", "acceptance 1: rule: 'hope' is no acceptance rule; it is one of"),
        ("rejection sampling", "Relaxed-Acceptance", "acceptance 1: lossless: must be false for Relaxed-"),
        ("alpha: 0.7", "alpha: 0.7, alpha_low: 0.8",
         "acceptance 1: alpha: must lie in its own interval (0.8 to ?), got 0.7"),
        ("alpha: 0.7", "alpha: 0.7, alpha_low: 0.1, alpha_high: 0.6",
         "acceptance 1: alpha: must lie in its own interval (0.1 to 0.6), got 0.7"),
        ("drafts: 9, accepted_at: [8, 5]", "drafts: 900, alpha: 0.8, accepted_at: [9, 5]",
         "acceptance 2: alpha: 0.8 contradicts the counts, where 0.01 of 900 first tokens were accepted"),
        ("acceptance_length: 2.4", "acceptance_length: 3.4",
         "proof 1: acceptance_length: counts the bonus token, so must be between 1 and 3, got 3.4"),
        ("[0.1, -0.1]", "[0.1, -1.1]",
         "fits 1: errors: are law over cell minus 1, so must be above -1, got -1.1"),
        ("0.0082, 0.0081, 0.0083", "100000, 0.0081, 100000",
         "cells.target 2: [1, 4, 512] took 100,000 s, and its law says 8.004 ms: more than 100 times apart"),
        ("0.0082, 0.0081, 0.0083", "0.00002, 0.00001, 0.0083",
         "cells.target 2: [1, 4, 512] took 20 µs, and its law says 8.004 ms: more than 100 times apart"),
        ("weights_s: 0.008, compute_s_per_token: 1.0e-06", "weights_s: 0, compute_s_per_token: 1.0e-320",
         "laws.target: takes 1e-320 s for one token, and nothing is done in less than 1 ns; check the unit"),
        ("{fixed_s: 0.001}", "{fixed_s: 1.0e-320}", "laws.draft: takes 1e-320 s for one token"),
        ("{fixed_s: 0.001}", "{fixed_s: 0.001}\n  plain-host: {fixed_s: 100000}",
         "laws.plain-host: takes 100,000 s for one token, and the longest pass timed 8.2 ms; check the unit"),
        ("{fixed_s: 0.001}", "{fixed_s: 0.001, kv_s_per_token: 9}", "laws.draft: takes 9.001 s for one"),
        ("cells:\n", "cells:\n  plain-host:\n    - [1, 1, 512, 0.0001, 0.0001, 0.0001, 20]\n",
         "cells.plain-host 1: [1, 1, 512] took 100 µs, and its law says 0 s: more than 100 times apart"),
        ("kind: passes", "kind: runs", "target: unknown key"),
        ("dtype: bfloat16", "dtpye: bfloat16", "dtpye: unknown key; did you mean dtype?"),
        ("target: llama\n", "", "target: is missing"),
        ("eager", "lazy", "regime: must be one of eager, cuda-graph, compile, got 'lazy'"),
        ("draft-model", "medusa", "method: must be one of draft-model, ngram, got 'medusa'"),
        ("weights_s: 0.008", "weights_s: -1", "laws.target.weights_s: must be between 0 and 100000, got -1"),
        ("weights_s: 0.008", "weights: 0.008", "laws.target.weights: unknown key; did you mean weights_s?"),
        ("weights_s: 0.008, ", "", "laws.target.weights_s: is missing"),
        ("1.0e-06", "1e-06", "laws.target.compute_s_per_token: YAML 1.1 reads 1e-06 as text; write 1.0e-06"),
        ("1.0e-06", ".nan", "laws.target.compute_s_per_token: "),
        ("1.0e-06", "1.0e+999", "laws.target.compute_s_per_token: must be finite, got 1.0e+999"),
        ("  draft: {fixed_s: 0.001}\n", "", "laws.draft: is missing"),
        ("{fixed_s: 0.001}", "[0.001]", "laws.draft: must be a mapping of keys to values, got a list"),
        ("alpha: 0.7", "alpha: 1.7", "acceptance 1: alpha: must be between 0 and 1, got 1.7"),
        ("alpha: 0.7", "positions: 9", "line 15: key 'positions' is given twice"),
        (",\n     alpha: 0.7", "", "acceptance 1: alpha: is missing; give it, or k, drafts and accepted_at"),
        ("[8, 5]", "[5, 8]", "acceptance 2: accepted_at: must not grow, from the drafts on (9), got [5, 8]"),
        ("[8, 5]", "[10, 5]", "acceptance 2: accepted_at: must not grow, from the drafts on (9)"),
        ("[8, 5]", "[8]", "acceptance 2: accepted_at: must have a count for each of k = 2, got 1"),
        ("[8, 5]", "[8, 5.5]", "acceptance 2: accepted_at: must be whole numbers, got 5.5"),
        ("[8, 5]", "[8, null]", "acceptance 2: accepted_at: must be whole numbers, got nan"),
        ("- [1, 4, 512", "- [1, 1, 512", "cells.target 2: [1, 1, 512] is given twice; keep one"),
        ("- [1, 4, 512", "- [0, 4, 512", "cells.target 2: batch must be a whole number from 1 to"),
        ("- [1, 4, 512", "- [1, 4.5, 512", "cells.target 2: width must be a whole number"),
        ("- [1, 4, 512", "- [1, 4, 2.0e+99", "cells.target 2: context must be a whole number from 0"),
        ("0.0082, 0.0081, 0.0083", "-1, -2, 0", "cells.target 2: seconds must be a number from 1e-09 to"),
        ("0.0082, 0.0081, 0.0083", "0, 0, 0", "cells.target 2: seconds must be a number from 1e-09 to"),
        ("0.0082, 0.0081, 0.0083", "0.9, 0.0081, 0.0083", "cells.target 2: the median must lie between its"),
        ("0.0082, 0.0081", ".inf, 0.0081", "cells.target 2: "),
        ("0.0083, 20]", "0.0083]", "cells.target 2: must be a list of 7 numbers, got a list of 6"),
        ("- [1, 4, 512", "- [[1], 4, 512", "cells.target 2: must be a number, got a list"),
        ("    - [1, 4,", "    - &a [1, 4,", "line 27: anchors and aliases (&, *) are not read"),
        ("cells:\n  target", "cells:\n  draft", "cells.target: is missing; a calibration has at least one"),
        ("cells:\n  target", "cells:\n  trget", "cells.trget: unknown key; did you mean target?"),
        ("device: cpu", "device: [cpu]", "machine.device: must be a text, got a list"),
        ("llama", "'" + "x" * 600 + "'", "target: must have at most 500 characters, got 600"),
        ("llama", "[" * 400, "line 3: nested more than 16 levels deep"),
        ("llama", "!!python/object:os.system x", "line 3: tags"),
        ("llama", "x #" + "y" * 2**20, "is larger than 1 MiB"),
    ],
)  # fmt: skip
def test_a_faulty_calibration_ends_in_one_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in GOOD
    assert refusal(tmp_path, GOOD.replace(old, new, 1)).startswith(problem)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("origin: server", "origin: dream", "origin: must be one of server, runs, history, got 'dream'"),
        ("k: 3", "k: 0", "runs 1: k: must be between 1 and 10000, got 0"),
        ("2.5", "4.5", "runs 1: acceptance_length: counts the bonus token, so must be between 1 and 4"),
        ("0.008}", "-0.008}", "runs 1: speculative_s: must be between 1e-09 and 100000, got -0.008"),
        ("batch: 8, ", "", "runs 1: batch: is missing"),
        ("batch: 8, ", "batch: 8, tpot: 1, ", "runs 1: tpot: unknown key"),
        ("source:", "target:", "target: unknown key"),
    ],
)
def test_faulty_runs_end_in_one_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in RUNS
    assert refusal(tmp_path, RUNS.replace(old, new, 1)).startswith(problem)


@settings(max_examples=200)
@given(st.data())
def test_no_damage_to_a_file_ends_in_anything_but_a_record_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = data.draw(st.sampled_from([GOOD, RUNS]))
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(start + 40, len(text))))
    damage = data.draw(st.text("0123456789.-[]{}:,\n \"'&*!nulatrgs", max_size=12))
    path = tmp_path_factory.mktemp("file") / "my.yaml"
    path.write_text(text[:start] + damage + text[stop:], encoding="utf-8")
    line = f"{path}: "
    try:
        read_calibration(path)
    except DataError as fault:
        line = str(fault)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
