"""Folders of weights: what is loaded, what is refused, and that nothing in them is run."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from calibrate.checkpoints import open_checkpoint
from calibrate.models import default_dtype, load_pass_model, model_shape, random_shape
from calibrate.runners import ModelRunner, require_agreement
from specmath.errors import AccessError, DataError, InputError, SpecmathError, UnknownNameError
from tests.tiny_models import tiny_model

PAIR = Path(__file__).parent / "data" / "micro_pair"
Change = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small model that may be spoilt."""
    path = tmp_path / "model"
    model: Any = tiny_model("llama")
    model.save_pretrained(path)
    return path


def config(**fields: object) -> Change:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))

    return change


def text(name: str, content: str | bytes) -> Change:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / name).write_bytes(data)


def pickled(folder: Path) -> None:
    """A pickle that would leave a trace, in place of the weights."""

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (folder / "was_run",))

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))


def coded(folder: Path) -> None:
    """A class of its own that would leave a trace."""
    (folder / "modeling_trap.py").write_text(f"open({str(folder / 'was_run')!r}, 'w')\nclass Trap: pass\n")
    config(auto_map={"AutoModelForCausalLM": "modeling_trap.Trap", "AutoConfig": "modeling_trap.Trap"})(
        folder
    )


def header(content: bytes, size: int | None = None) -> Change:
    return text("model.safetensors", struct.pack("<Q", len(content) if size is None else size) + content)


def shards(**names: str) -> Change:
    """An index in place of the one file."""

    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
        index = {"metadata": {}, "weight_map": names}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return change


def spoilt(folder: Path) -> None:
    """One weight that is no number."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def without(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


HOSTILE: list[tuple[str, Change, type[SpecmathError], str]] = [
    ("pickle", pickled, AccessError, r"holds only pytorch_model\.bin, a pickle, which is never opened"),
    ("code", coded, DataError, "asks for code of its own, which is never run"),
    ("nested code", config(text_config={"auto_map": {"AutoConfig": "x.Y"}}), DataError, "asks for code"),
    ("kernel", config(_attn_implementation="someone/kernel"), DataError, "names a kernel to be loaded"),
    ("quantized", config(quantization_config={"quant_method": "gptq"}), DataError, "--server"),
    ("adapter", text("adapter_config.json", "{}"), DataError, "merge it into its base"),
    ("no weights", without("model.safetensors"), AccessError, "holds no weights"),
    ("no config", without("config.json"), AccessError, r"config\.json"),
    ("empty config", text("config.json", ""), DataError, "is empty"),
    ("cut config", text("config.json", '{"model_type": "llama"'), DataError, r"config\.json"),
    ("list as config", text("config.json", "[1]"), DataError, "expected a table"),
    ("bytes as config", text("config.json", b"\xff\xfe\x00"), DataError, r"config\.json"),
    ("deep config", text("config.json", "[" * 100_000), DataError, "nested too deeply"),
    (
        "unknown family",
        config(model_type="zebra", architectures=["Zebra"]),
        DataError,
        "not known to transformers",
    ),
    ("no family", config(model_type=7), DataError, "not known to transformers"),
    (
        "recurrent",
        config(model_type="mamba", state_size=16, expand=2, conv_kernel=4, time_step_rank=2),
        DataError,
        "--server",
    ),
    ("draft head", config(architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=32), DataError, "head"),
    ("text as width", config(hidden_size="wide"), DataError, "must be a whole number from 1"),
    ("huge", config(vocab_size=10**9), DataError, "do not belong together"),
    ("other width", config(intermediate_size=40), DataError, r"."),
    ("more layers", config(num_hidden_layers=3), DataError, r"."),
    (
        "other vocabulary",
        config(vocab_size=10),
        DataError,
        r"lm_head\.weight is \[61, 32\] in the weights and \[10, 32\] by config\.json",
    ),
    ("not a number", spoilt, DataError, "holds NaN or infinity in fp32"),
    ("cut weights", text("model.safetensors", b"\x08\x00"), DataError, "no valid safetensors file"),
    ("huge header", header(b"{}", 2**62), DataError, "no valid safetensors file"),
    ("odd header", header(b"[1, 2]"), DataError, "no valid safetensors file"),
    (
        "offsets beyond the file",
        header(b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}'),
        DataError,
        "no valid safetensors file",
    ),
    (
        "pickle as weights",
        text("model.safetensors", pickle.dumps([1])),
        DataError,
        "no valid safetensors file",
    ),
    ("shard elsewhere", shards(a="../other.safetensors"), DataError, "is no file of this folder"),
    ("shard at a path", shards(a="/etc/passwd"), DataError, "is no file of this folder"),
    ("shard missing", shards(a="model-00002-of-00002.safetensors"), AccessError, "fetch the weights again"),
    ("no shards", shards(), DataError, "weight_map: must be a table"),
]


@pytest.mark.parametrize(
    ("change", "error", "said"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE]
)
def test_a_hostile_folder_ends_in_one_line(
    folder: Path, change: Change, error: type[SpecmathError], said: str
) -> None:
    change(folder)
    with pytest.raises(error, match=said) as caught:
        load_pass_model(str(folder))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert not (folder / "was_run").exists()


def test_a_folder_is_loaded_as_it_is(folder: Path) -> None:
    loaded = load_pass_model(str(folder))
    text = torch.tensor([[3, 5, 7]])
    expected = tiny_model("llama")(input_ids=text).logits
    torch.testing.assert_close(loaded.model(input_ids=text).logits, expected, rtol=1e-4, atol=1e-4)
    assert (loaded.dtype, loaded.folder) == ("fp32", folder)
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())


def test_shards_are_loaded(folder: Path) -> None:
    model: Any = tiny_model("llama")
    shutil.rmtree(folder)
    model.save_pretrained(folder, max_shard_size="10KB")
    assert not (folder / "model.safetensors").exists()
    loaded = load_pass_model(str(folder))
    assert loaded.model.num_parameters() == model.num_parameters()


@pytest.mark.parametrize(("part", "params"), [("target", 869_504), ("draft", 83_136)])
def test_the_micro_pair(part: str, params: int) -> None:
    loaded = load_pass_model(str(PAIR / part))
    assert loaded.shape is not None
    assert loaded.shape.total_params == loaded.model.num_parameters() == params
    assert loaded.shape.weight_bytes == 4 * params
    require_agreement(ModelRunner(loaded.model, name=part))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_random_weights_of_a_catalogue_model(dtype: str) -> None:
    loaded = load_pass_model("random:llama-68m", dtype=dtype)
    assert loaded.shape is not None
    assert loaded.model.num_parameters() == loaded.shape.total_params == 68_030_208
    assert (loaded.dtype, loaded.folder) == (dtype, None)
    runner = ModelRunner(loaded.model, name="llama-68m")
    require_agreement(runner)
    kept = sum(layer.token_bytes for layer in runner.layers)
    assert kept == loaded.shape.kv_bytes_per_token == 2 * 2 * 768 * (4 if dtype == "fp32" else 2)
    logits = runner.logits(runner.slots(1, 8), torch.tensor([[1, 2]]), torch.zeros(1, dtype=torch.long))
    assert bool(torch.isfinite(logits).all())
    assert float(logits.std()) > 0


def test_random_weights_of_a_configuration(folder: Path) -> None:
    first, second = (load_pass_model(f"random:{folder}") for _ in range(2))
    text = torch.tensor([[3, 5]])
    assert torch.equal(first.model(input_ids=text).logits, second.model(input_ids=text).logits)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("random:llama-3.1-9b", UnknownNameError, "llama-3.1-8b"),
        ("random:deepseek-v3", DataError, "released in fp8"),
        ("random:eagle3-llama-3.1-8b", DataError, "runs in an engine only"),
        ("random:nemotron-nano-9b-v2", DataError, "recurrent state"),
        ("./nowhere", AccessError, "no such folder"),
        ("nobody/nothing-of-the-kind", AccessError, "not in the local cache"),
        ("a/b/c", AccessError, "no such folder"),
        ("../../no/etc", AccessError, "no such folder; name a folder"),
        ("~no-such-user-here", AccessError, "no such user on this machine"),
        ("", AccessError, "names no model"),
        ("random:", AccessError, "random:: names no model; give random:NAME"),
        (__file__, AccessError, "is a file; name the folder that holds it"),
        ("two\nlines", AccessError, "no such folder"),
    ],
)
def test_names_that_cannot_be_loaded(
    name: str, error: type[SpecmathError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(error, match=said) as caught:
        load_pass_model(name)
    assert "\n" not in str(caught.value)


def test_links_in_a_circle_are_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(AccessError, match="too many levels of symbolic links"):
        load_pass_model(str(tmp_path / "loop"))


def test_libraries_are_silent(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An index that asks for other sizes makes transformers write a report of many lines."""
    config(vocab_size=10)(folder)
    with pytest.raises(DataError):
        load_pass_model(str(folder))
    for name in ("transformers.modeling_utils", "huggingface_hub.file_download"):
        assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL)
    assert capfd.readouterr() == ("", "")


def test_a_dry_run_of_a_hub_id_fetches_its_configuration_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def snapshot(name: str, *, local_files_only: bool = False, **_: Any) -> str:
        assert local_files_only, "no snapshot is fetched"
        raise FileNotFoundError(name)

    asked: list[tuple[str, str]] = []

    def one_file(name: str, file: str, **_: Any) -> str:
        asked.append((name, file))
        return str(folder / file)

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", one_file)
    shape = model_shape("me/tiny-of-the-hub", dtype="fp32")
    assert shape is not None
    assert shape.vocab == 61
    assert asked == [("me/tiny-of-the-hub", "config.json")]


def test_an_unknown_dtype() -> None:
    with pytest.raises(InputError, match="dtype"):
        load_pass_model("random:llama-68m", dtype="fp4")
    assert default_dtype("cpu") == "fp32"


def test_the_shape_of_a_random_model_needs_no_weights() -> None:
    shape = random_shape("random:llama-3.1-8b")
    assert shape is not None
    assert shape.weight_bytes == 2 * 8_030_261_248


def test_a_hub_id_is_found_in_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = tmp_path / "hub" / "models--me--tiny"
    (snapshots / "refs").mkdir(parents=True)
    (snapshots / "refs" / "main").write_text("abc")
    shutil.copytree(folder, snapshots / "snapshots" / "abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert open_checkpoint("me/tiny").folder == snapshots / "snapshots" / "abc"
