"""The set-up of the question beside the columns of a runs file that name one: does a row belong to it?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from specmath.catalogue import load_hardware
from specmath.cli.options import DeviceOptions
from specmath.errors import SpecmathError
from specmath.model_catalogue import load_model
from specmath.model_counts import looks_like_counts, model_from_counts
from specmath.row_files import number_in
from specmath.sources import StepTimeSource

_DEGREES: Final = ("tp", "dp", "ep", "pp")
_ANY_ENGINE: Final = (None, "typical", "ideal")
_SAME_COUNT: Final = 0.1
"""Share by which a model's parameters may differ from the counts that the question gives for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSetup:
    """What the question is about, by column of a runs file; what it leaves open is missing.

    Attributes:
        values: Names as the catalogues have them; degrees of parallelism as text.
        hardware_file: Where else accelerators are named.
    """

    values: Mapping[str, str]
    hardware_file: str | None = None

    @classmethod
    def of(cls, source: StepTimeSource, device: DeviceOptions) -> AskedSetup:
        """The set-up of a source of step times and of the options behind it."""
        told: Mapping[str, Any] = source.inputs
        engine = device.engine if told.get("profile") in _ANY_ENGINE else told["profile"]
        named = {
            "hardware": told.get("hardware"),
            "target": told.get("target"),
            "draft": told.get("draft"),
            "method": told.get("method"),
            "engine": None if engine in _ANY_ENGINE else engine,
            "weights": device.quantization or device.dtype,
            "kv": device.kv_cache_dtype,
            **{name: told.get(name) or 1 for name in _DEGREES},
        }
        if " " in str(named["draft"]):  # a head that was derived has no name
            named["draft"] = None
        values = {name: str(value) for name, value in named.items() if value is not None}
        return cls(values=values, hardware_file=device.hardware_file)

    def differs(self, column: str, cell: object) -> bool:
        """Whether a cell names something else than the question does."""
        asked = self.values.get(column)
        if asked is None:
            return False
        if column in _DEGREES:
            return not _is_number(cell, float(asked))
        text = str(cell)
        if column == "hardware":
            return not self._is_part(text, asked)
        if column in ("target", "draft"):
            return not _is_model(text, asked)
        return _squeezed(text.partition("@")[0]) != _squeezed(asked.partition("@")[0])

    def _is_part(self, text: str, asked: str) -> bool:
        """The same part; a name that may mean several, and this one, counts as it."""
        try:
            return load_hardware(text, hardware_file=self.hardware_file).name == asked
        except SpecmathError:
            return bool(_squeezed(text)) and _squeezed(asked).startswith(_squeezed(text))


def _is_number(cell: object, asked: float) -> bool:
    try:
        return number_in(cell) == asked
    except ValueError:
        return False


def _is_model(text: str, asked: str) -> bool:
    """The same model by name, hub id or alias; one known by its counts alone by the number of parameters."""
    if _squeezed(text) == _squeezed(asked):
        return True
    try:
        if looks_like_counts(asked) or looks_like_counts(text):
            params = [_params(name) for name in (text, asked)]
            return max(params) <= min(params) * (1 + _SAME_COUNT)
        return load_model(text).name == asked
    except SpecmathError:
        return False


def _params(name: str) -> float:
    shape = model_from_counts(name) if looks_like_counts(name) else load_model(name)
    return float(shape.total_params)


def _squeezed(name: str) -> str:
    """The last part of a name or path, without case and separators."""
    return re.sub(r"[-_ .]", "", name.strip().lower().rstrip("/").rpartition("/")[2])
