"""`specmath init`, and servers as sources on the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from specmath.cli import run
from specmath.engines.project_file import Entry

if TYPE_CHECKING:
    from tests.conftest import Web

SAMPLES = Path(__file__).with_name("data") / "engine_samples"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def specmath(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in an empty folder: status, stdout and stderr of a line."""
    monkeypatch.chdir(tmp_path)

    def answer(line: str) -> tuple[int, str, str]:
        status = run(line.split())
        told = capsys.readouterr()
        return status, told.out, told.err

    return answer


def counters(unit: int, model: str = LLAMA) -> str:
    """Drafts of 3 tokens, 8 a unit, of which half go on at each position: α = .5 exactly."""
    labels = f'engine="0",model_name="{model}"'
    totals = {"drafts": 8, "draft_tokens": 24, "accepted_tokens": 7}
    lines = [f"vllm:spec_decode_num_{name}_total{{{labels}}} {unit * n}" for name, n in totals.items()]
    lines += [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{place}"}} {unit * n}'
        for place, n in enumerate((4, 2, 1))
    ]
    return "\n".join(lines) + "\n"


def serve_vllm(web: Web, served: str = LLAMA, scrape: str | None = None, **server_info: Any) -> None:
    web.serve("/v1/models", {"data": [{"id": served, "owned_by": "vllm", "max_model_len": 8192}]})
    web.serve("/metrics", counters(100, served) if scrape is None else scrape)
    web.serve("/version", {"version": "0.33.0"})
    if server_info:
        web.serve("/server_info", {"vllm_config": server_info})


def written(path: str = "specmath.toml") -> dict[str, Any]:
    return tomllib.loads(Path(path).read_text(encoding="utf-8"))


# ---------------------------------------------------------------- what is written


def test_what_a_server_tells_becomes_defaults_that_a_question_runs_with(web: Web, specmath: Run) -> None:
    serve_vllm(web)
    status, out, err = specmath(f"init {web.url}")
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "wrote specmath.toml: engine, target, alpha, k"
    assert out.splitlines()[1].startswith(
        "not seen, there as comments or stand-ins: quantization, tp, method, draft,"
    )
    assert "hardware" in out
    assert written() == {
        "engine": "vllm@0.33.0", "target": "llama-3.1-8b", "draft": "1B", "alpha": "0.5000", "k": 3
    }  # fmt: skip
    for command in ("speedup", "crossover", "schedule", "tokens"):
        status, out, err = specmath(f"{command} -f json")
        assert status == 0, err
        assert "defaults from specmath.toml" in err
        assert "0.5000" in err
    status, out, _ = specmath("speedup --alpha .5 --draft eagle3-llama-3.1-8b -f csv")
    assert (status, out.splitlines()[1].split(",")[:2]) == (0, ["vllm", "0.5"]), "what is typed wins"


def test_alpha_is_what_the_alpha_command_says(web: Web, specmath: Run) -> None:
    serve_vllm(web)
    specmath(f"init {web.url}")
    text = Path("specmath.toml").read_text(encoding="utf-8")
    _, out, _ = specmath(f"alpha {web.url} -f csv")
    row = dict(zip(*(line.split(",") for line in out.splitlines()[:2]), strict=False))
    assert written()["alpha"] == f"{float(row['alpha']):.4f}"
    assert f"95 % from {float(row['alpha_low']):.3f} to {float(row['alpha_high']):.3f}, 800 drafts" in text


def test_a_set_up_told_in_full(web: Web, specmath: Run) -> None:
    serve_vllm(
        web,
        "production",
        model_config={"model": LLAMA, "quantization": "fp8", "dtype": "torch.bfloat16"},
        parallel_config={"tensor_parallel_size": 2, "pipeline_parallel_size": 1, "data_parallel_size": 1},
        scheduler_config={"max_num_seqs": 64},
        cache_config={"cache_dtype": "fp8"},
        speculative_config={
            "method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 3
        },
    )  # fmt: skip
    assert specmath(f"init {web.url}")[0] == 0
    assert written() == {
        "engine": "vllm@0.33.0",
        "target": "llama-3.1-8b",
        "quantization": "fp8",
        "kv-cache-dtype": "fp8",
        "tp": 2,
        "method": "eagle3",
        "draft": "eagle3-llama-3.1-8b",
        "alpha": "0.5000",
        "k": 3,
        "max-batch": 64,
    }
    status, out, err = specmath("crossover -f json")
    assert status == 0, err
    assert '"tp": 2' in out


def test_sglang(web: Web, specmath: Run) -> None:
    web.serve("/metrics", (SAMPLES / "sglang-0.5.23-metrics.txt").read_bytes())
    web.serve("/server_info", (SAMPLES / "sglang-0.5.23-server-info.json").read_bytes())
    assert specmath(f"init {web.url}")[0] == 0
    told = written()
    assert (told["engine"], told["target"], told["method"], told["k"]) == (
        "sglang@0.5.23", "qwen3-8b", "eagle3", 3
    )  # fmt: skip
    status, _, err = specmath("speedup -f csv")
    assert status == 0, err


def test_llama_cpp_by_the_name_of_its_file(web: Web, specmath: Run) -> None:
    web.serve("/metrics", (SAMPLES / "llamacpp-2026-10-metrics.txt").read_bytes())
    web.serve(
        "/props", {"build_info": "b11434-abc", "total_slots": 4, "model_path": "/m/Qwen3-8B-Q4_K_M.gguf"}
    )
    assert specmath(f"init {web.url}")[0] == 0
    told = written()
    assert (told["engine"], told["target"], told["quantization"]) == ("llama.cpp@b11434", "qwen3-8b", "int4")
    assert (told["rates"], told["max-batch"], "alpha" in told) == ("0.8/0.775/0.7419", 4, False)
    assert specmath("schedule -f csv")[0] == 0


def test_a_lookup_draft_has_its_match_rate(web: Web, specmath: Run) -> None:
    labels = f'{{engine="0",model_name="{LLAMA}"}}'
    steps = f"vllm:inter_token_latency_seconds_count{labels} 1600\n"
    scrape = counters(100) + f"vllm:generation_tokens_total{labels} 2300\n" + steps
    serve_vllm(web, LLAMA, scrape, speculative_config={"method": "ngram", "num_speculative_tokens": 3})
    specmath(f"init {web.url}")
    told = written()
    assert (told["method"], told["match-rate"]) == ("ngram", "0.5000")
    assert "draft" not in told
    status, _, err = specmath("speedup -f csv")
    assert status == 0, err


def seen_by(model: str, *, share: float = 1.0) -> str:
    """A scrape of requests of 100 prompt and 40 answer tokens, of whose steps that share drafted."""
    labels, steps = f'{{engine="0",model_name="{model}"}}', 800 / share
    told = {
        "request_prompt_tokens_sum": 1000,
        "request_prompt_tokens_count": 10,
        "request_generation_tokens_sum": 400,
        "request_generation_tokens_count": 10,
        "inter_token_latency_seconds_count": steps,
        "generation_tokens_total": steps + 680,  # less than 700: requests end within a draft
    }
    return counters(100, model) + "".join(f"vllm:{name}{labels} {value}\n" for name, value in told.items())


def test_a_context_waits_for_a_target_and_a_draft(web: Web, specmath: Run) -> None:
    """70B and 1B, which stand in for them, have no cache to be read."""
    web.serve("/v1/models", {"data": [{"id": "m", "owned_by": "vllm", "root": "target"}]})
    web.serve("/metrics", seen_by("m"))
    assert specmath(f"init {web.url}")[0] == 0
    text = Path("specmath.toml").read_text(encoding="utf-8")
    assert "context" not in written()
    assert "\n# context = 120 " in text
    assert "needs a named target and draft beside it" in text
    for command in ("speedup", "crossover", "schedule"):
        status, _, err = specmath(f"{command} -f csv")
        assert status == 0, err
    for method, context in ((None, None), ("eagle3", 120)):
        serve_vllm(web, LLAMA, seen_by(LLAMA), speculative_config={"method": method})
        specmath(f"init {web.url} --force")
        assert written().get("context") == context
        assert specmath("speedup -f csv")[0] == 0


def test_steps_without_drafts_are_in_what_is_written(web: Web, specmath: Run) -> None:
    """E = 1.875 once drafted, 800 of 2000 steps: 2680/2000 = 1.34 tokens a step, h = .34/.875."""
    serve_vllm(web, "m", seen_by("m", share=0.4))
    specmath(f"init {web.url}")
    told, text = written(), Path("specmath.toml").read_text(encoding="utf-8")
    assert (told["match-rate"], "method" in told, "draft" in told) == (f"{0.34 / 0.875:.4f}", False, False)
    assert "40.0% of the steps drafted; 1.340 tokens per step over all" in text
    _, out, _ = specmath("tokens -f csv")
    row = dict(zip(*(line.split(",") for line in out.splitlines()[:2]), strict=False))
    assert float(row["acceptance_length"]) == pytest.approx(1.34, abs=1e-4)
    for command in ("speedup", "crossover", "schedule"):
        status, _, err = specmath(f"{command} -f csv")
        assert status == 0, err


@pytest.mark.parametrize(
    ("share", "method", "line"),
    [
        (0.4, "eagle3", "# match-rate = "),
        (0.97, "eagle3", None),
        (0.97, None, None),
        (0.4, "ngram", "match-rate = "),
    ],
)
def test_only_a_lookup_has_a_match_rate(
    share: float, method: str | None, line: str | None, web: Web, specmath: Run
) -> None:
    told = {} if method is None else {"speculative_config": {"method": method, "num_speculative_tokens": 3}}
    serve_vllm(web, LLAMA, seen_by(LLAMA, share=share), **told)
    specmath(f"init {web.url}")
    lines = Path("specmath.toml").read_text(encoding="utf-8").splitlines()
    found = [one for one in lines if "match-rate = " in one]
    assert [one.startswith(line) for one in found] == [True] if line else found == []


def test_a_cpu_build_is_thought_of(web: Web, specmath: Run) -> None:
    serve_vllm(web)
    specmath(f"init {web.url}")
    (line,) = [
        one for one in Path("specmath.toml").read_text(encoding="utf-8").splitlines() if "engine =" in one
    ]
    assert line.endswith("# as it says: vllm 0.33.0; known on GPUs: for a CPU build write cpu, or typical")


def test_a_server_without_speculation_still_tells_its_set_up(web: Web, specmath: Run) -> None:
    serve_vllm(web, scrape=f'vllm:num_requests_running{{model_name="{LLAMA}"}} 12\n')
    status, out, _ = specmath(f"init {web.url}")
    assert status == 0
    assert written() == {"engine": "vllm@0.33.0", "target": "llama-3.1-8b", "draft": "1B", "batch": 12}
    assert "alpha" in out.splitlines()[1]
    assert specmath("speedup --alpha .7 -f csv")[0] == 0


def test_a_model_that_is_not_packaged(web: Web, specmath: Run) -> None:
    for name in ("my-finetune", "../../etc/passwd", "/etc/hosts.json", "-", "70B", ""):
        serve_vllm(web, name or "x")
        assert specmath(f"init {web.url} --force")[0] == 0
        assert "target" not in written()
        assert specmath("speedup -f csv")[0] == 0


def test_a_file_of_this_machine_is_not_what_a_server_means(web: Web, specmath: Run) -> None:
    """A folder that bears the name of the served model may hold anything."""
    serve_vllm(web)
    Path(LLAMA).mkdir(parents=True)
    (Path(LLAMA) / "config.json").write_text("{}", encoding="utf-8")
    assert specmath(f"init {web.url} ")[0] == 0
    assert written()["target"] == "llama-3.1-8b"


def test_a_load_below_one_request_is_a_batch_of_one(web: Web, specmath: Run) -> None:
    serve_vllm(web, scrape=counters(100) + f'vllm:num_requests_running{{model_name="{LLAMA}"}} 0.3\n')
    specmath(f"init {web.url}")
    assert written()["batch"] == 1


def test_names_that_would_break_the_file_do_not(web: Web, specmath: Run) -> None:
    hostile = 'x"\nalpha = 5\n# \x1b[31m\u202e\x7f\\'
    web.serve("/v1/models", {"data": [{"id": hostile, "owned_by": "vllm"}]})
    web.serve("/version", {"version": hostile})
    web.serve("/server_info", {"vllm_config": {"model_config": {"quantization": hostile}}})
    assert specmath(f"init {web.url}")[0] == 0
    assert written() == {"engine": "vllm"}
    text = Path("specmath.toml").read_text(encoding="utf-8")
    assert all(line.isprintable() for line in text.splitlines())
    line = Entry(key="target", value=hostile, comment=hostile).line()
    assert tomllib.loads(line) == {"target": 'x" alpha = 5 # [31m\\'}


def test_quantised_by_name(web: Web, specmath: Run) -> None:
    for name, weights in (
        ("Qwen/Qwen3-8B-FP8", "fp8"),
        ("Qwen/Qwen3-8B-AWQ", "int4"),
        ("Qwen/Qwen3-8B", None),
    ):
        serve_vllm(web, name)
        specmath(f"init {web.url} --force")
        assert (written()["target"], written().get("quantization")) == ("qwen3-8b", weights)


# ---------------------------------------------------------------- where to


def test_a_file_that_is_there_stays_without_force(web: Web, specmath: Run) -> None:
    serve_vllm(web)
    Path("specmath.toml").write_text("][ no TOML", encoding="utf-8")
    status, out, err = specmath(f"init {web.url}")
    assert (status, out) == (1, "")
    assert err == (
        "specmath: error: specmath.toml: is there already; replace it with --force, or choose another -o\n"
    )
    assert web.asked == [], "nobody is asked for nothing"
    assert Path("specmath.toml").read_text(encoding="utf-8") == "][ no TOML"
    assert specmath(f"init {web.url} --force")[0] == 0
    assert written()["engine"] == "vllm@0.33.0"


def test_another_file_or_stdout(web: Web, specmath: Run) -> None:
    serve_vllm(web)
    assert specmath(f"init {web.url} -o a.toml")[0] == 0
    status, out, err = specmath(f"init {web.url} -o -")
    assert (status, out) == (0, Path("a.toml").read_text(encoding="utf-8"))
    assert err.startswith("not seen, there as comments")
    assert not Path("specmath.toml").exists()


def test_written_whole_or_not_at_all(web: Web, specmath: Run) -> None:
    serve_vllm(web)
    Path("dir").mkdir(mode=0o500)
    status, _, err = specmath(f"init {web.url} -o dir/none/a.toml")
    assert (status, "the folder does not exist" in err) == (1, True)
    web.serve("/metrics", counters(100).replace("} 700", "} 7000"))  # more accepted than drafted
    assert specmath(f"init {web.url}")[0] == 1
    assert [path.name for path in Path().iterdir()] == ["dir"]


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("init http://127.0.0.1:1", 1, "http://127.0.0.1:1: nothing listens there; start the server"),
        ("init ftp://host", 2, "SOURCE: ftp://host is no address that can be asked; give http://HOST:PORT"),
        ("init metrics.txt", 2, "SOURCE: metrics.txt is no address"),
        ("init", 2, "Missing argument 'URL'"),
    ],
)
def test_faults(line: str, status: int, words: str, specmath: Run) -> None:
    code, out, err = specmath(line)
    assert (code, out) == (status, "")
    assert words in err
    assert err.count("\n") == 1


def test_of_several_models_one_is_named(web: Web, specmath: Run) -> None:
    serve_vllm(web, scrape=counters(1, "a") + counters(100, LLAMA))
    status, _, err = specmath(f"init {web.url}")
    assert (status, "--model: is missing: the server has 2; pick one: a, " in err) == (2, True)
    assert specmath(f"init {web.url} --model {LLAMA}")[0] == 0
    assert written()["alpha"] == "0.5000"
    status, _, err = specmath(f"init {web.url} --model b --force")
    assert (status, "unknown model 'b'" in err) == (1, True)


# ---------------------------------------------------------------- servers as sources


def test_a_server_answers_a_question(web: Web, specmath: Run) -> None:
    serve_vllm(web)
    status, out, err = specmath(f"speedup --from {web.url} --k 3 --c .05 -f csv")
    assert status == 0, err
    assert out.splitlines()[1].startswith("ratios,0.5,")


def test_watching_on_the_command_line(web: Web, specmath: Run) -> None:
    serve_vllm(web)
    first = web.actions["/metrics"]

    def then(handler: Any) -> None:
        first(handler)
        web.serve("/metrics", counters(150))

    web.on("/metrics", then)
    status, out, err = specmath(f"alpha {web.url} --watch 20ms -f json")
    assert status == 0, err
    assert '"drafts": 400' in out
    for line in (
        f"alpha {web.url} --watch 1 --since a.txt",
        "alpha a.txt --watch 1",
        f"alpha {web.url} --watch x",
    ):
        assert specmath(line)[0] == 2


def test_ctrl_c_ends_a_watch_with_an_answer(web: Web, tmp_path: Path) -> None:
    serve_vllm(web)
    command = [sys.executable, "-m", "specmath", "alpha", web.url, "--watch", "600", "-f", "csv"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while "/server_info" not in web.paths:  # the last that is asked before the wait
            time.sleep(0.01)
        web.serve("/metrics", counters(150))
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert ",difference,400" in out
    assert "Traceback" not in err


def test_a_secret_shows_up_nowhere(web: Web, specmath: Run) -> None:
    serve_vllm(web)
    url = web.url.replace("//", "//me:secret@")
    for line in (
        f"init {url} -o -",
        f"alpha {url} -f json",
        f"alpha {url}/none",
        f"init {url.replace('http', 'ftp')}",
    ):
        _, out, err = specmath(line)
        assert "secret" not in out + err, line


@pytest.mark.parametrize(
    "line",
    ["tokens --alpha .7", "alpha sample.txt -f csv", "speedup --alpha .7 --c .1 -f csv", "init --help"],
)
def test_nothing_is_imported_for_a_server_that_is_not_asked(line: str, tmp_path: Path) -> None:
    (tmp_path / "sample.txt").write_text(counters(100), encoding="utf-8")
    code = (
        "import sys; from specmath.cli import run; run(sys.argv[1:]);"
        "loaded = {'specmath.engines.fetching', 'specmath.engines.servers'} & set(sys.modules);"
        "print(*loaded, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *line.split()],
        cwd=tmp_path, capture_output=True, text=True, check=True, env=os.environ | {"NO_COLOR": "1"},
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == ""
