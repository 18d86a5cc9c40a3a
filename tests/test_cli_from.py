"""`--from SOURCE` in every question: an engine's own output in the place of a typed acceptance."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from specmath.cli import run
from specmath.cli.plain_runs import is_plain_run

if TYPE_CHECKING:
    from tests.conftest import Web

Call = Callable[..., tuple[int, str, str]]
SAMPLES = Path(__file__).parent / "data" / "engine_samples"
REAL = Path(__file__).parent / "data" / "engine_samples_real"
SCRAPE = SAMPLES / "vllm-0.13.0-dp2-metrics-2.txt"  # k 3, 8.5 requests in a step of 12.44 ms
RATES = "0.739355/0.684119/0.65051"
FLAT = REAL / "vllm_cpu_0.32.0_pair_draft_T0.metrics.after.txt"  # one α, .5864 at k 4
LOOKUP = REAL / "vllm_cpu_0.32.0_pair_ngram_T0.metrics.after.txt"  # 154 of 567 steps drafted


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line; returns status, stdout and stderr."""

    def called(*words: object) -> tuple[int, str, str]:
        status = run(list(map(str, words)))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return called


def asked(call: Call, *words: object) -> dict[str, Any]:
    status, out, err = call(*words, "-f", "json")
    assert (status, err) == (0, "")
    document: dict[str, Any] = json.loads(out)
    return document


def codes(document: dict[str, Any]) -> set[str]:
    return {warning["code"] for warning in document["warnings"]}


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        pytest.param(["tokens"], ["--k", 3], id="tokens"),
        pytest.param(["speedup", "--c", ".1"], ["--k", 3, "--batch", 8], id="speedup, ratios"),
        pytest.param(
            ["speedup", "--target", "llama-3.1-8b", "--draft", "llama-3.2-1b", "--context", "2k"],
            ["--k", 3, "--batch", 8],
            id="speedup, models",
        ),
        pytest.param(["crossover"], ["--k", 3, "--batch", 8], id="crossover"),
        pytest.param(["crossover", "--flips"], ["--k", 3, "--batch", 8], id="flips"),
        pytest.param(["schedule", "--batches", "1:16:x2"], [], id="schedule"),
    ],
)
def test_every_question_answers_as_if_the_figures_had_been_typed(
    call: Call, command: list[object], typed: list[object]
) -> None:
    document = asked(call, *command, "--from", SCRAPE)
    by_hand = asked(call, *command, "--rates", RATES, *typed)
    assert document["rows"] == by_hand["rows"]
    assert document["schema"] == by_hand["schema"]
    assert document["inputs"]["alpha_from"] == str(SCRAPE)
    first = document["assumptions"][0]
    assert (
        f"acceptance from {SCRAPE} (vllm 0.11.0 or newer, 9,300 drafts at k = 3): α = 0.7011, 95 %" in first
    )
    assert "not-constant" in codes(document)


def test_one_alpha_where_nothing_speaks_against_it(call: Call) -> None:
    [row] = asked(call, "tokens", "--from", FLAT)["rows"]
    assert row["alpha"] == pytest.approx(475 / (389 + 221 + 124 + 76))
    assert row["k"] == 4


def test_what_is_typed_wins_over_what_the_source_ran(call: Call) -> None:
    document = asked(call, "speedup", "--from", FLAT, "--k", "2,6", "--batch", "16")
    assert {(row["k"], row["batch"]) for row in document["rows"]} == {(2, 16), (6, 16)}
    assert "extrapolated" in codes(document)
    assert "extrapolated" not in codes(asked(call, "tokens", "--from", FLAT, "--k", 3))


def test_rates_go_on_beyond_the_measured_positions_with_a_note(call: Call) -> None:
    document = asked(call, "tokens", "--from", SCRAPE, "--k", 5)
    assert document["rows"][0]["conditional"][3:] == pytest.approx([0.65051, 0.65051])
    assert "extrapolated" in codes(document)


def test_a_schedule_tries_as_far_as_was_measured_or_asked(call: Call) -> None:
    plan = ("schedule", "--batches", "1", "--from", SCRAPE)
    assert asked(call, *plan)["inputs"]["k_max"] == 3
    longer = asked(call, *plan, "--k-max", 5)
    assert longer["inputs"]["k_max"] == 5
    assert "extrapolated" in codes(longer)


def test_of_a_server_with_tiers_the_longest_draft_seen_is_the_k(call: Call) -> None:
    """Set to 8, but nothing beyond position 3 was ever accepted."""
    tiers = SAMPLES / "vllm-0.33.0-dynamic-k-metrics.txt"
    assert asked(call, "tokens", "--from", tiers)["rows"][0]["k"] == 3
    assert "extrapolated" in codes(asked(call, "tokens", "--from", tiers, "--k", 4))


def test_two_scrapes(call: Call) -> None:
    earlier = SAMPLES / "vllm-0.13.0-dp2-metrics-1.txt"
    document = asked(call, "tokens", "--from", SCRAPE, "--since", earlier)
    assert document["rows"][0]["survival"] == pytest.approx([4080 / 5500, 2790 / 5500, 1820 / 5500], rel=1e-5)


def test_a_lookup_source_brings_its_match_rate(call: Call) -> None:
    document = asked(call, "tokens", "--from", LOOKUP, "--match-rate", ".5")
    assert document["rows"][0]["law"].startswith("match-rate=0.5 ")
    document = asked(call, "speedup", "--from", LOOKUP, "--method", "ngram", "--target", "llama-3.1-8b")
    assert document["rows"][0]["acceptance_length"] == pytest.approx(1 + 297 / 567)  # as accepted over steps
    told = next(one for one in document["warnings"] if one["code"] == "steps-without-drafts")
    assert "give --match-rate" not in told["remedy"]
    assert "match rate of 0.272" in told["remedy"]
    assert document["inputs"]["method"] == "ngram"


def test_a_single_k_typed_completes_a_source_without_one(call: Call) -> None:
    log = SAMPLES / "vllm-0.8.4-v1-server.log"
    [row] = asked(call, "tokens", "--from", log, "--k", 2)["rows"]
    assert row["acceptance_length"] == pytest.approx(1 + 1284 / 1200)
    status, out, err = call("tokens", "--from", log, "--k", "2,3")
    assert (status, out) == (1, "")
    assert "does not tell k" in err


def test_tokens_of_short_drafts_are_those_counted(call: Call) -> None:
    after, before = (
        REAL / f"vllm_cpu_0.32.0_trained_ngram_T0.metrics.{when}.txt" for when in ("after", "before")
    )
    [row] = asked(call, "tokens", "--from", after, "--since", before)["rows"]
    assert row["acceptance_length"] == pytest.approx(1 + 2314 / 1277, rel=1e-5)


def test_a_forecast_for_another_machine_is_told(call: Call) -> None:
    """The server took 12.36 ms a step, on two cores; an H100 does not."""
    source = REAL / "vllm_cpu_0.32.0_trained_draft_T0.metrics.after.txt"
    words = ("--from", source, "--target", "0.003B", "--draft", "0.0003B", "--engine", "vllm")
    document = asked(call, "speedup", *words)
    [told] = [one for one in document["warnings"] if one["code"] == "another-machine"]
    step_ms = 1e3 * document["rows"][0]["step_s"]
    assert (
        f"own step took 12.36 ms at batch 1, the one forecast takes {step_ms:.4g} ms at batch 1"
        in told["text"]
    )
    assert "another-machine" not in codes(asked(call, "speedup", *words, "--batch", 8)), "it ran at batch 1"
    models = ("--target", "llama-3.1-8b", "--draft", "llama-3.2-1b", "--engine", "vllm")
    assert "another-machine" not in codes(asked(call, "speedup", "--from", SCRAPE, *models))


def test_a_version_named_against_the_server_is_told(call: Call, web: Web) -> None:
    web.serve("/metrics", FLAT.read_bytes())
    web.serve("/version", {"version": "0.32.0"})
    words = ("tokens", "--from", web.url, "--source-engine")
    [told] = [
        one for one in asked(call, *words, "vllm@0.8.4")["warnings"] if one["code"] == "version-overridden"
    ]
    assert "its version is 0.32.0, and the 0.8.4 named" in told["text"]
    for same in ("vllm@0.32", "vllm@0.32.0", "vllm"):
        assert "version-overridden" not in codes(asked(call, *words, same))


def test_a_watch_tells_tokens_per_second(call: Call, web: Web) -> None:
    """500 tokens, whatever was counted before, over no less than the seconds watched and not much more."""
    name = 'vllm:generation_tokens_total{engine="0",model_name="m"} '
    scrapes = []
    for when, count in (("before", 900_000), ("after", 900_500)):
        text = (REAL / f"vllm_cpu_0.32.0_trained_draft_T0.metrics.{when}.txt").read_text()
        start, _, rest = text.partition(name)
        scrapes.append(f"{start}{name}{count}\n{rest.partition(chr(10))[2]}")
    left = iter(scrapes)

    def answer(handler: Any) -> None:
        web.serve("/next", next(left))
        web.actions["/next"](handler)

    web.on("/metrics", answer)
    [row] = asked(call, "alpha", web.url, "--watch", "0.2s")["rows"]
    assert 500 / 10 < row["tokens_per_s"] <= 500 / 0.2


# ---------------------------------------------------------------- beside --measured


def test_a_plain_run_is_compared_with_the_source(call: Call) -> None:
    """Off: 9.756 ms a token at batch 8; on: a step of 12.439 ms yields 2.5742 tokens."""
    document = asked(call, "crossover", "--from", SCRAPE, "--measured", "off=820tok/s@8")
    row = document["rows"][0]
    assert row["case"] == "measured"
    assert row["speedup"] == pytest.approx(8 / 820 / (0.01243871 / (23_940 / 9300)), rel=1e-3)
    assert "plain-run-beside-source" in codes(document)


def test_a_plain_run_at_another_batch_is_left_out_with_the_reason(call: Call) -> None:
    document = asked(
        call, *("schedule", "--from", SCRAPE, "--measured", "off=3120tok/s@32", "--engine", "vllm@0.32")
    )
    told = next(one for one in document["warnings"] if one["code"] == "plain-run-alone")
    assert "ran 8.5 requests in a step, not 32" in told["text"]
    assert document["config"]


def test_a_whole_pair_is_left_alone(call: Call) -> None:
    measured = "off=3120tok/s@32,on=5180tok/s@32,k=3"
    document = asked(call, "speedup", "--from", SCRAPE, "--batch", 32, "--measured", measured)
    assert document["rows"][0]["speedup"] == pytest.approx(5180 / 3120, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("off=1ms@8", True),
        ("off=1ms,batch=8", True),
        ("off=1ms@8,on=2ms@8", False),
        ("off=1ms@8,speedup=2", False),
        ("runs.csv", False),
        ("a=b.csv", False),
        ("k=3,speedup=2", False),
    ],
)
def test_which_measurement_is_a_plain_run_alone(text: str, plain: bool) -> None:
    assert is_plain_run(text) is plain


def test_a_diagnosis_takes_the_other_arm_from_the_source(call: Call) -> None:
    document = asked(call, "diagnose", "off=820tok/s@8", "--from", SCRAPE, "--engine", "vllm")
    assert document["rows"][0]["step_s"] == pytest.approx(0.01243871, rel=1e-5)


# ---------------------------------------------------------------- a config, and refusals


def test_a_fixed_k_is_written_with_its_forecast(call: Call) -> None:
    document = asked(call, "schedule", "--from", FLAT, "--k", 3, "--engine", "vllm@0.32")
    assert '"num_speculative_tokens": 3' in json.dumps(document["config"]).replace('\\"', '"')
    assert document["inputs"]["alpha_from"] == str(FLAT)


@pytest.mark.parametrize("command", ["tokens", "speedup", "crossover", "schedule"])
@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        pytest.param(["--from", SCRAPE, "--alpha", ".7"], 2, "--alpha and --from exclude", id="two laws"),
        pytest.param(["--from", SCRAPE, "--rates-kind", "survival"], 2, "--rates-kind and --from", id="kind"),
        pytest.param(["--alpha", ".7", "--since", SCRAPE], 2, "--since: belongs to --from", id="stray"),
        pytest.param(["--alpha", ".7", "--model", "x"], 2, "--model: belongs to --from", id="stray model"),
        pytest.param(["--from", "nowhere.txt"], 1, "nowhere.txt: ", id="no file"),
        pytest.param(
            ["--from", SAMPLES / "vllm-0.13.0-zero-drafts-metrics.txt"], 1, "no data: ", id="no data"
        ),
    ],
)
def test_a_wrong_line_is_told_in_one(
    call: Call, command: str, words: list[object], status: int, problem: str
) -> None:
    found, out, err = call(command, *words)
    assert (found, out, err.count("\n")) == (status, "", 1)
    assert problem in err


def test_stdin_is_read_once(call: Call) -> None:
    status, out, err = call("speedup", "--from", "-", "--target", "-")
    assert (status, out) == (2, "")
    assert "--from: - is taken already" in err


def test_several_models_are_named(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "two.txt"
    path.write_text(
        "".join(
            f'vllm:spec_decode_num_{name}_total{{model_name="{model}"}} {value}\n'
            for model in ("small", "large")
            for name, value in (("drafts", 100), ("draft_tokens", 100), ("accepted_tokens", 60))
        ),
        encoding="utf-8",
    )
    status, out, err = call("tokens", "--from", path, "--k", 1)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "pick one: small, large" in err
    assert asked(call, "tokens", "--from", path, "--k", 1, "--model", "small")["rows"][0]["alpha"] == 0.6


def test_a_project_file_may_name_the_source(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specmath.toml").write_text(
        f'from = "{SCRAPE}"\nsource-engine = "vllm"\n[tokens]\nk = "3"\n', encoding="utf-8"
    )
    status, out, _ = call("tokens", "-f", "json")
    assert (status, json.loads(out)["inputs"]["alpha_from"]) == (0, str(SCRAPE))
    status, out, _ = call("tokens", "--alpha", ".5", "-f", "json")  # what is typed drops the source
    assert (status, json.loads(out)["rows"][0]["alpha"]) == (0, 0.5)
