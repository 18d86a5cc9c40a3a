"""Models to be timed: from a folder or the hub, or of random weights in the shape of a catalogue model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.utils import logging

from calibrate.attention import FOLDED, register_folded_attention
from calibrate.checkpoints import SERVER_REMEDY, described, open_checkpoint, runnable_shape, silence_loggers
from calibrate.timing import out_of_memory_reason
from specmath.errors import AccessError, DataError, InputError, SpecmathError, UnknownNameError
from specmath.hf.document import config_file, parse_document, read_text, text_part
from specmath.model import ModelShape
from specmath.model_catalogue import catalogue_entry, catalogue_name, model_names

RANDOM: Final = "random:"
DTYPES: Final[Mapping[str, torch.dtype]] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
FOLDED_TEXT: Final = "PyTorch sdpa, query heads of one key head in one product"
_RANDOM_STD: Final = 0.02
_SIZE_TOLERANCE: Final = 0.02
_RELEASED_IN: Final = "_released_in"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run.

    Attributes:
        name: As it was given.
        model: In evaluation mode, without gradients.
        dtype: One of `DTYPES`, of weights and cache.
        attention: Kernel of the attention, in words.
        shape: What specmath counts for it, in `dtype`; None for a family it does not know.
        folder: Where weights and tokenizer lie; None for random weights.
    """

    name: str
    model: PreTrainedModel
    dtype: str
    attention: str
    shape: ModelShape | None
    folder: Path | None


def load_pass_model(
    name: str, *, device: torch.device | str = "cpu", dtype: str | None = None
) -> LoadedModel:
    """The model of that name on a device.

    Args:
        name: A folder, a hub id, or `random:NAME` of a catalogue model or a config.json.
        device: Where it runs.
        dtype: One of `DTYPES`; None for what suits the device (`default_dtype`).

    Raises:
        InputError: an unknown dtype.
        UnknownNameError: no catalogue model of that name.
        AccessError: no such folder or hub id; no safetensors.
        DataError: something that cannot be loaded or timed here, with what to do.
    """
    device = torch.device(device)
    dtype = dtype or default_dtype(device)
    if dtype not in DTYPES:
        raise InputError("dtype", f"must be one of {', '.join(DTYPES)}, got {dtype!r}")
    silence_loggers()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    register_folded_attention()
    if name.startswith(RANDOM):
        document, where = _described(name.removeprefix(RANDOM))
        shape, folder = runnable_shape(document, where, name=name), None
        model = _built(where, lambda: _random_model(document, where, device, DTYPES[dtype]))
        _require_like_size(model, shape, where)
    else:
        checkpoint = open_checkpoint(name)
        shape, folder = checkpoint.shape, checkpoint.folder
        _require_known_family(checkpoint.document, str(folder))
        model = _built(str(folder), lambda: _stored_model(checkpoint.folder, device, DTYPES[dtype]))
        _require_finite(model, str(folder), dtype)
    model.train(False).requires_grad_(False)
    if model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(FOLDED)
    is_folded = model.config._attn_implementation == FOLDED
    return LoadedModel(
        name=name,
        model=model,
        dtype=dtype,
        attention=FOLDED_TEXT if is_folded else "eager",
        shape=shape and shape.with_dtype(dtype),
        folder=folder,
    )


def default_dtype(device: torch.device | str) -> str:
    """bf16 on a GPU that multiplies it, fp16 on another; fp32 on a CPU: most have no hardware for less."""
    if torch.device(device).type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def random_shape(name: str, *, dtype: str = "bf16") -> ModelShape | None:
    """The shape that `random:NAME` would have, without building it."""
    document, where = _described(name.removeprefix(RANDOM))
    shape = runnable_shape(document, where, name=name)
    return shape and shape.with_dtype(dtype)


def model_shape(name: str, *, dtype: str = "bf16") -> ModelShape | None:
    """The shape of a model that could be loaded by that name, of a hub id from its config.json alone.

    Raises:
        AccessError, DataError, UnknownNameError: as `load_pass_model`, as far as files tell.
    """
    if name.startswith(RANDOM):
        return random_shape(name, dtype=dtype)
    shape = described(name)
    return shape and shape.with_dtype(dtype)


def _described(name: str) -> tuple[Mapping[str, Any], str]:
    """The configuration behind `random:NAME`, and what to call it."""
    if not name.strip():
        raise AccessError(RANDOM, f"names no model; give {RANDOM}NAME of the catalogue, or of a config.json")
    known = catalogue_name(name)
    if known is not None:
        entry, where = catalogue_entry(known), f"{RANDOM}{known}"
        if released := entry.get(_RELEASED_IN):
            raise DataError(
                where, f"is released in {released}: quantized weights take other kernels; {SERVER_REMEDY}"
            )
        return {key: value for key, value in entry.items() if not key.startswith("_")}, where
    if not name.endswith(".json") and not Path(name).is_dir():
        raise UnknownNameError("model", name, model_names())
    file = config_file(Path(name))
    return parse_document(read_text(file), str(file)), str(file)


def _require_known_family(document: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The table of the text model, of a family that this transformers knows."""
    config, _ = text_part(document, where)
    for table in (document, config):
        if table.get("model_type") not in transformers.CONFIG_MAPPING:
            family = f"model_type {str(table.get('model_type'))[:40]!r}"
            version = transformers.__version__
            raise DataError(where, f"{family} is not known to transformers {version}; {SERVER_REMEDY}")
    return config


def _random_model(
    document: Mapping[str, Any], where: str, device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    fields = dict(_require_known_family(document, where))
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    with torch.device(device), no_init_weights():  # the usual start values take minutes on a CPU
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
    model.tie_weights()
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=_RANDOM_STD, generator=generator)
            else:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
    return model


def _require_like_size(model: PreTrainedModel, shape: ModelShape | None, where: str) -> None:
    """A family that reads other fields than the file has is built in its default size, without a word."""
    built = model.num_parameters()
    if shape is not None and abs(built / shape.total_params - 1) > _SIZE_TOLERANCE:
        counted = f"{built:,} parameters built, {shape.total_params:,} counted"
        raise DataError(where, f"transformers reads another size from it ({counted}); {SERVER_REMEDY}")


def _stored_model(folder: Path, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=dtype,
        trust_remote_code=False,
        use_safetensors=True,
        local_files_only=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # which are told here in words
    )
    model, report = loaded
    problem = next(_mismatches(report), None)
    if problem is not None:
        raise DataError(str(folder), f"weights and config.json do not match: {problem}; fetch both again")
    placed: PreTrainedModel = model.to(device)
    return placed


def _mismatches(report: Mapping[str, Any]) -> Iterator[str]:
    """What transformers found missing or of another size."""
    for name, stored, described_size in sorted(report.get("mismatched_keys") or ()):
        sizes = f"{list(stored)} in the weights and {list(described_size)} by config.json"
        yield f"{name} is {sizes}"
    for name in sorted(map(str, report.get("missing_keys") or ())):
        yield f"the weights hold no {name}"


def _require_finite(model: PreTrainedModel, where: str, dtype: str) -> None:
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            problem = f"{name} holds NaN or infinity in {dtype}"
            raise DataError(where, f"{problem}; fetch the weights again, or take another --dtype")


def _built(where: str, build: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """What `build` makes; any failure of transformers is one line."""
    try:
        return build()
    except SpecmathError:
        raise
    except Exception as error:  # a configuration can be wrong in more ways than there are classes of errors
        if out_of_memory_reason(error):
            raise DataError(
                where, "does not fit into the memory of the device; take a smaller model"
            ) from error
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise DataError(where, f"transformers cannot build it: {text[:150]}; {SERVER_REMEDY}") from error
