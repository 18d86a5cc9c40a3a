"""Names, aliases, hub ids, files: what a model can be called, and what naming one opens and imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specmath import model_catalogue
from specmath.errors import AccessError, SpecmathError, UnknownNameError
from specmath.model_catalogue import MODELS, catalogue_entry, hub_ids, load_model, model_names
from specmath.model_tables import list_models, model_sheet

INDEX: dict[str, dict[str, str]] = json.loads((MODELS / "_index.json").read_text())


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("llama-3.1-70b", "llama-3.1-70b"),
        ("Llama-3.1-70B", "llama-3.1-70b"),
        ("llama-3.1-70b-instruct", "llama-3.1-70b"),
        ("llama_3.1_70b", "llama-3.1-70b"),
        ("llama3.1-70b", "llama-3.1-70b"),
        ("llama-4-scout", "llama-4-scout-17b-16e"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("META-LLAMA/llama-3.1-70b-instruct", "llama-3.1-70b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "eagle3-llama-3.1-8b"),
    ],
)
def test_names_of_one_model(typed: str, name: str) -> None:
    assert load_model(typed).name == name


def test_every_index_entry_names_a_model() -> None:
    for table in INDEX.values():
        assert set(table.values()) <= set(model_names())
        assert len({key.lower() for key in table}) == len(table)
    assert not set(INDEX["aliases"]) & set(model_names())


def test_spellings_are_unique() -> None:
    squeezed = [model_catalogue._squeezed(name) for name in model_names()]
    assert len(set(squeezed)) == len(squeezed)


def test_every_entry_has_a_source() -> None:
    assert not [name for name in model_names() if not load_model(name).source]


def test_unknown_names_list_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'lama-3.1-8b'; nearest: llama-3.1-8b"):
        load_model("lama-3.1-8b")


def test_an_unknown_hub_id_asks_for_the_config() -> None:
    message = r"unknown model 'meta-llama/Llama-9-8B'; give the path of its config.json"
    with pytest.raises(UnknownNameError, match=message):
        load_model("meta-llama/Llama-9-8B")


def opened_by(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files below specmath/models that loading `name` opens."""
    opened: list[str] = []
    original = Path.open

    def recording(path: Path, *args: Any, **kwargs: Any) -> Any:
        opened.append(path.name)
        return original(path, *args, **kwargs)

    model_catalogue._index.cache_clear()
    monkeypatch.setattr(Path, "open", recording)
    load_model(name)
    return opened


def test_a_name_opens_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened_by("llama-3.1-8b", monkeypatch) == ["llama-3.1-8b.json"]


def test_a_hub_id_opens_the_index_and_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened_by("Qwen/Qwen3-8B", monkeypatch) == ["_index.json", "qwen3-8b.json"]


def test_reading_imports_nothing_heavy() -> None:
    code = (
        "import sys; from specmath.model_catalogue import load_model; load_model('deepseek-v3');"
        "load_model('Qwen/Qwen3-8B');"
        "heavy = {'numpy', 'pandas', 'yaml', 'rich', 'typer', 'torch'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_file_and_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(catalogue_entry("qwen3-8b")))
    for path in (folder, folder / "config.json"):
        model = load_model(str(path))
        assert model.total_params == 8_190_735_360
        assert model.name == "my-model"
        assert model.source == str(folder / "config.json")


def test_hf_quant_config_beside_the_config(tmp_path: Path) -> None:
    """Older ModelOpt checkpoints keep the quantisation in a file of its own."""
    (tmp_path / "config.json").write_text(json.dumps(catalogue_entry("llama-3.1-8b")))
    quantization = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    document = {"producer": {"name": "modelopt", "version": "0.29"}, "quantization": quantization}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(document))
    model = load_model(str(tmp_path))
    widths = {group.name: group.bytes_per_param for group in model.weights}
    assert widths == {"head": 2.0, "embedding": 2.0, "norms": 2.0, "attention": 1.0, "mlp": 1.0}
    assert model.kv_bytes_per_token == 65536


def test_the_quantisation_of_the_config_comes_first(tmp_path: Path) -> None:
    own = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}}
    (tmp_path / "config.json").write_text(json.dumps(catalogue_entry("llama-3.1-8b") | own))
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    assert {group.name: group.bytes_per_param for group in load_model(str(tmp_path)).weights}["mlp"] < 0.6


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        ("folder", "the folder holds no config.json"),
        ("loop", "too many levels of symbolic links"),
        ("binary", "is no text"),
        ("absent", "no such file"),
        ("huge", "is larger than 32 MiB"),
        ("empty", "is empty"),
    ],
)
def test_files_that_are_no_config(make: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    if make == "folder":
        path = tmp_path
    elif make == "loop":
        path.symlink_to(path)
    elif make == "binary":
        path.write_bytes(bytes(range(256)) * 64)
    elif make == "huge":
        with path.open("wb") as file:
            file.truncate(200 * 2**20)
    elif make == "empty":
        path.write_text("")
    with pytest.raises(SpecmathError, match=problem) as caught:
        load_model(str(path))
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises((AccessError, UnknownNameError)):
        load_model("a\0b")


def test_listing_opens_all_and_filters() -> None:
    assert len(list_models()) == len(model_names())
    assert [row["name"] for row in list_models("gpt-oss*").rows()] == ["gpt-oss-120b", "gpt-oss-20b"]
    assert [row["name"] for row in list_models("eagle3*deepseek*").rows()] == ["eagle3-deepseek-v3"]
    drafts = [row["kind"] for row in list_models(drafts=True).rows()]
    assert "model" not in drafts
    assert set(drafts) == {"eagle", "eagle3", "p-eagle", "medusa", "dflash", "dspark", "domino"}
    with pytest.raises(UnknownNameError, match="unknown model 'zzz'"):
        list_models("zzz")


@pytest.mark.parametrize(
    "name", ["deepseek-v3.2", "gemma-4-e2b", "qwen3.6-35b-a3b-nvfp4", "eagle3-phi-4", "t5-v1.1-xl"]
)
def test_the_rows_of_a_sheet_add_up(name: str) -> None:
    model = load_model(name)
    rows = [row for row in model_sheet(model).rows() if not str(row["part"]).startswith("mtp ")]
    for key, total in (
        ("stored_params", model.total_params),
        ("read_params", model.read_params),
        ("bytes", model.weight_bytes),
        ("kv_bytes_per_token", model.kv_bytes_per_token),
        ("state_bytes", model.state_bytes),
    ):
        values = [row[key] for row in rows]
        assert sum(value for value in values if isinstance(value, int | float)) == pytest.approx(
            total, rel=1e-12
        )


def test_the_rows_of_a_windowed_mixture() -> None:
    rows = {row["part"]: row for row in model_sheet(load_model("gpt-oss-20b")).rows()}
    assert rows["cache window"]["window"] == 128
    assert rows["cache full"]["window"] is None
    assert (rows["experts"]["experts"], rows["experts"]["top_k"], rows["experts"]["layers"]) == (32, 4, 24)
    assert rows["head"]["compute_dtype"] == "bf16"


def test_a_sheet_lists_what_was_assumed() -> None:
    sheet = model_sheet(load_model("llama-3.1-8b"))
    assert sheet.assumptions[0] == "No dtype in the file: counted as bf16."
    assert sheet.inputs["hub_ids"] == list(hub_ids("llama-3.1-8b"))
    assert any(line.startswith("source: ") for line in sheet.derivation)
    assert len(sheet) == len(list(sheet.rows()))


def test_no_other_json_is_a_model() -> None:
    assert all(not name.startswith("_") for name in model_names())
