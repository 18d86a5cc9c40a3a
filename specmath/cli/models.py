"""From the device and model options to accelerators, layouts and models."""

from __future__ import annotations

from specmath.accelerator import Accelerator
from specmath.axes import parse_axis
from specmath.catalogue import load_hardware
from specmath.cli.options import DeviceOptions
from specmath.cli.text import given_or, parse_count
from specmath.errors import InputError
from specmath.execution import IDEAL, Efficiency, Layout
from specmath.model import ModelShape
from specmath.model_counts import looks_like_counts, model_from_counts
from specmath.units import parse_quantity

DEFAULT_HARDWARE = "h100-sxm"


def accelerator(device: DeviceOptions) -> Accelerator:
    """The accelerator of the options."""
    return load_hardware(given_or(device.hardware, DEFAULT_HARDWARE), hardware_file=device.hardware_file)


def layout(device: DeviceOptions) -> Layout:
    """How the options spread the target."""
    return Layout(**{name: degree(name, getattr(device, name)) for name in ("tp", "dp", "ep", "pp")})


def efficiency(device: DeviceOptions) -> Efficiency:
    """The ideal, padded to the captured sizes if there are any."""
    if device.graph_sizes is None:
        return IDEAL
    return Efficiency(graph_sizes=tuple(parse_axis("graph_sizes", device.graph_sizes, whole=True)))


def link(device: DeviceOptions) -> float | None:
    """The link that was typed, in bytes per second; None for the catalogue's."""
    return None if device.link is None else parse_quantity("link", device.link, "B/s")


def model(role: str, text: str, device: DeviceOptions, *, draft_kind: str | None = None) -> ModelShape:
    """The model that the text names, in the dtypes that the options ask for; only a target is quantised."""
    try:
        shape = _named_model(text, draft_kind)
        if device.dtype is not None:
            shape = shape.with_dtype(device.dtype)
        if device.quantization is not None and role == "target":
            shape = shape.with_quantization(device.quantization)
        if device.kv_cache_dtype is not None:
            shape = shape.with_kv_cache_dtype(device.kv_cache_dtype)
    except InputError as error:
        raise InputError(
            {"total_params": role, "active_params": role}.get(error.name, error.name), error.problem
        ) from error
    return shape


def _named_model(text: str, draft_kind: str | None) -> ModelShape:
    if looks_like_counts(text):
        return model_from_counts(text)
    if text == "-":
        from specmath.hf.document import read_stdin
        from specmath.hf.reader import read_config

        return read_config(read_stdin(), "stdin", name="stdin", draft_kind=draft_kind)
    from specmath.model_catalogue import load_model

    return load_model(text, draft_kind=draft_kind)


def degree(name: str, text: str | None) -> int:
    """A degree of parallelism, 1 where none is given."""
    return 1 if text is None else parse_count(name, text)
