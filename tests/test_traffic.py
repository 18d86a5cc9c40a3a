"""Classes of traffic, their lengths, and traces: means against draws, refusals in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specmath.acceptance import ConstantAcceptance
from specmath.errors import DataError, InputError
from specmath.trace_files import read_trace
from specmath.traffic import Limits, Spread, Trace, Traffic, TrafficClass

LAW = ConstantAcceptance(0.7)
CHAT = TrafficClass(name="chat", share=1, prompt_tokens=2000, output_tokens=300, law=LAW)
SPREADS: list[tuple[Spread, float]] = [("constant", 0.0), ("geometric", 0.0), ("lognormal", 0.8)]


def traffic(*classes: TrafficClass, rate: float = 5.0) -> Traffic:
    return Traffic(rate_per_s=rate, classes=classes)


@pytest.mark.parametrize(("spread", "variation"), SPREADS)
def test_lengths_have_the_mean_and_the_spread_that_the_class_says(spread: Spread, variation: float) -> None:
    one = replace(CHAT, spread=spread, variation=variation)
    prompts, outputs = one.lengths(400_000, np.random.default_rng(1))
    assert prompts.mean() == pytest.approx(2000, rel=0.01)
    assert outputs.mean() == pytest.approx(300, rel=0.01)
    assert outputs.var() / outputs.mean() ** 2 == pytest.approx(one.squared_variation, rel=0.03, abs=1e-4)
    assert min(prompts.min(), outputs.min()) >= 1


@pytest.mark.parametrize(("spread", "variation"), SPREADS)
def test_the_mean_context_is_that_of_a_sequence_looked_at_while_it_runs(
    spread: Spread, variation: float
) -> None:
    one = replace(CHAT, output_tokens=40, spread=spread, variation=variation)
    _, outputs = one.lengths(200_000, np.random.default_rng(2))
    seen = np.sum(outputs * (outputs / 2.0)) / np.sum(outputs)  # each token of an output is a step of it
    assert one.context == pytest.approx(2000 + seen, rel=0.002)


@pytest.mark.parametrize(("spread", "variation"), SPREADS)
def test_quantiles_are_those_of_the_draws(spread: Spread, variation: float) -> None:
    one = replace(CHAT, spread=spread, variation=variation)
    _, outputs = one.lengths(400_000, np.random.default_rng(3))
    levels = np.array([0.1, 0.5, 0.95])
    assert one.output_quantile(levels) == pytest.approx(np.quantile(outputs, levels), rel=0.03)


def test_a_mean_between_whole_numbers_draws_both() -> None:
    one = replace(CHAT, output_tokens=2.25)
    assert one.lengths(100_000, np.random.default_rng(4))[1].mean() == pytest.approx(2.25, abs=0.01)


def test_kinds_of_prompts_keep_the_mean_and_the_shares() -> None:
    mixed = traffic(
        replace(CHAT, share=0.25, spread="geometric"), replace(CHAT, name="bulk", share=0.75, prompt_tokens=8)
    )
    shares, tokens = mixed.prompts(drafting=False)
    assert shares.sum() == pytest.approx(1)
    assert shares @ tokens == pytest.approx(mixed.prefill_tokens(drafting=False))


def test_cached_prompt_tokens_are_not_computed_again() -> None:
    one = replace(CHAT, prefix_tokens=1500, prefix_unit=16)
    assert one.prefill_tokens(drafting=False) == 2000 - 1488
    assert one.prefill_tokens(drafting=True) == 2000 - 1472
    assert replace(one, loses_prefix=False).prefill_tokens(drafting=True) == 2000 - 1488


def test_classes_weigh_by_the_tokens_they_decode() -> None:
    short, long = replace(CHAT, share=0.5), replace(CHAT, name="long", share=0.5, output_tokens=900)
    assert traffic(short, long).context == pytest.approx((300 * 2150 + 900 * 2450) / 1200)
    assert traffic(short, long).output_tokens_per_s == 3000


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"output_tokens": 0}, "output_tokens: must be at least 2, got 0: nothing would be emitted"),
        ({"output_tokens": 1}, "the prefill emits the first token, nothing is decoded"),
        ({"prompt_tokens": 0}, "prompt_tokens: must be between 1"),
        ({"share": 0}, "share: must be above 0"),
        ({"spread": "uniform"}, "spread: must be constant or geometric or lognormal"),
        ({"variation": 0.5}, "variation: goes with lognormal lengths"),
        ({"prefix_tokens": 2001}, "prefix_tokens: must be part of the prompt, got 2,001 of 2,000 tokens"),
    ],
)
def test_a_class_refuses(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as fault:
        replace(CHAT, **change)
    assert told in str(fault.value)
    assert "\n" not in str(fault.value)


def test_traffic_refuses() -> None:
    for rate in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="rate_per_s"):
            traffic(CHAT, rate=rate)
    with pytest.raises(InputError, match=r"shares must add up to 1, got 0.4 \+ 0.5 = 0.9"):
        traffic(replace(CHAT, share=0.4), replace(CHAT, name="b", share=0.5))
    with pytest.raises(InputError, match="different names"):
        traffic(replace(CHAT, share=0.5), replace(CHAT, share=0.5))
    with pytest.raises(InputError, match="are missing"):
        traffic()
    with pytest.raises(InputError, match="max_batch"):
        Limits(max_batch=0)


CSV = "arrival_s,prompt_tokens,output_tokens,class\n10,100,50,a\n12,300,90,b\n11,200,70,a\n"


def test_a_trace_is_sorted_and_starts_at_0(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(CSV)
    trace = read_trace(path)
    assert trace.arrival_s.tolist() == [0, 1, 2]
    assert trace.prompt_tokens.tolist() == [100, 200, 300]
    assert [trace.names[number] for number in trace.class_of] == ["a", "a", "b"]
    assert trace.rate_per_s == 1  # two gaps in two seconds
    mixed = trace.traffic([LAW, ConstantAcceptance(0.5)])
    assert [(one.name, one.output_tokens) for one in mixed.classes] == [("a", 60.0), ("b", 90.0)]
    assert mixed.shares == pytest.approx([2 / 3, 1 / 3])
    assert mixed.classes[0].squared_variation == pytest.approx((10 / 60) ** 2)


def test_columns_of_public_traces_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 5, "output_length": 7}\n' * 2)
    assert read_trace(path).output_tokens.tolist() == [7, 7]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("arrival_s,prompt_tokens,output_tokens\n", "holds no request"),
        ("arrival_s,prompt_tokens,output_tokens\n0,5,\n", "line 2: output_tokens: is missing"),
        ("arrival_s,prompt_tokens,output_tokens\n0,5,0\n", "line 2: output_tokens: must be a whole number"),
        ("arrival_s,prompt_tokens,output_tokens\n-1,5,5\n", "line 2: arrival_s: must be a number from 0"),
    ],
)
def test_a_trace_file_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(DataError) as fault:
        read_trace(path)
    assert told in str(fault.value)


def test_a_trace_without_a_rate_says_so() -> None:
    one = np.array([1])
    trace = Trace(arrival_s=np.array([0.0]), prompt_tokens=one, output_tokens=one, class_of=np.array([0]))
    with pytest.raises(InputError, match="two requests that arrive apart"):
        _ = trace.rate_per_s
    with pytest.raises(InputError, match="is empty"):
        Trace(arrival_s=np.array([]), prompt_tokens=one, output_tokens=one, class_of=one)


def test_more_classes_than_a_reader_looks_at_are_refused() -> None:
    many = [replace(CHAT, name=f"{number}", share=1 / 101) for number in range(101)]
    with pytest.raises(InputError, match="classes: must be at most 100, got 101"):
        traffic(*many)
    assert len(traffic(*(replace(one, share=0.01) for one in many[:100])).classes) == 100
