"""What `show model` shows: all models side by side, or one taken apart into its groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

from specmath.errors import UnknownNameError
from specmath.model import AttentionGroup, ExpertGroup, ModelShape, StateGroup, WeightGroup
from specmath.model_catalogue import hub_ids, load_model, model_names
from specmath.results import CHUNK_ROWS, Cell, Columns, Result

_Group = WeightGroup | ExpertGroup | AttentionGroup | StateGroup
_COUNTING = (
    "total: stored parameters, a tied table once, without vision towers and MTP modules",
    "active: without the experts a token does not visit; read: without tables that are only looked up, too",
    "KV bytes: what one token adds while every window holds it; growth: once the windows are full",
    "state bytes: recurrent state of one sequence, whatever its length",
)


def list_models(pattern: str | None = None, *, drafts: bool | None = None) -> ModelList:
    """The models of the catalogue, one a row.

    Args:
        pattern: Only names that contain this text, or match it where it holds `*`; None for all.
        drafts: True for draft heads only, False for models only, None for both.

    Raises:
        UnknownNameError: no name matches; the nearest are listed.

    >>> [row["name"] for row in list_models("llama-3.2").rows()]
    ['llama-3.2-1b', 'llama-3.2-3b']
    """
    names = [name for name in model_names() if pattern is None or _matches(name, pattern.lower())]
    if not names:
        raise UnknownNameError(
            "model", str(pattern), model_names(), "no name contains it; `show model` lists all"
        )
    models = tuple(load_model(name) for name in names)
    chosen = tuple(model for model in models if drafts is None or drafts == (model.draft is not None))
    return ModelList(models=chosen, pattern=pattern)


def model_sheet(model: ModelShape) -> ModelSheet:
    """One model, a row for each of its groups.

    >>> sheet = model_sheet(load_model("llama-3.1-8b"))
    >>> [(row["part"], row["stored_params"]) for row in sheet.rows()][:2]
    [('head', 525336576), ('embedding', 525336576)]
    """
    return ModelSheet(model=model)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if "*" in pattern else pattern in name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList(Result):
    """Models side by side.

    Attributes:
        models: One a row.
        pattern: The filter that was asked for; None without one.
    """

    models: tuple[ModelShape, ...]
    pattern: str | None

    schema: ClassVar[str] = "specmath.model/1"
    keys: ClassVar[tuple[str, ...]] = (
        *("name", "kind", "total_params", "active_params", "read_params", "weight_bytes"),
        *("kv_bytes_per_token", "kv_growth_bytes_per_token", "state_bytes", "layers", "max_context"),
    )

    @property
    def inputs(self) -> Mapping[str, Cell]:
        """The filter."""
        return {"pattern": self.pattern}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the columns mean."""
        return (*_COUNTING, "weight bytes: in the dtypes the file names, bf16 where it names none")

    def __len__(self) -> int:
        return len(self.models)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        """The columns, at most `size` models at a time."""
        for start in range(0, len(self), size):
            rows = [_summary(model) for model in self.models[start : start + size]]
            yield {key: [row[key] for row in rows] for key in self.keys}


def _summary(model: ModelShape) -> dict[str, Cell]:
    return {
        "name": model.name,
        "kind": model.draft.kind if model.draft else "model",
        "total_params": model.total_params,
        "active_params": model.active_params,
        "read_params": model.read_params,
        "weight_bytes": model.weight_bytes,
        "kv_bytes_per_token": model.kv_bytes_per_token,
        "kv_growth_bytes_per_token": model.kv_growth_bytes_per_token,
        "state_bytes": model.state_bytes,
        "layers": model.n_layers or None,
        "max_context": model.max_context,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSheet(Result):
    """One model: a row per group of weights, experts, attention and state; the sums are in the inputs.

    Attributes:
        model: The model.
    """

    model: ModelShape

    schema: ClassVar[str] = "specmath.model-sheet/1"
    keys: ClassVar[tuple[str, ...]] = (
        *("part", "layers", "stored_params", "read_params", "multiplied_params", "bytes_per_param"),
        *("compute_dtype", "bytes", "experts", "top_k", "kv_bytes_per_token", "flops_per_pair", "kv_heads"),
        *("window", "attended", "tokens_per_entry", "state_bytes"),
    )

    @property
    def inputs(self) -> Mapping[str, Cell]:
        """The sums, and what the file says about the model as a whole."""
        model = self.model
        return {
            "model": model.name,
            "hub_ids": list(hub_ids(model.name)),
            **{key: value for key, value in _summary(model).items() if key != "name"},
            "hidden": model.hidden or None,
            "vocab": model.vocab or None,
            "activation_dtype": model.activation_dtype,
            "draft_vocab": model.draft.draft_vocab if model.draft else None,
            "draft_tokens_per_pass": model.draft.max_tokens if model.draft else None,
            "mtp_params": model.mtp.total_params if model.mtp else None,
            "mtp_read_params": model.mtp.read_params if model.mtp else None,
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was assumed of this model, then what the figures mean."""
        return (*self.model.assumed, *_COUNTING)

    @property
    def derivation(self) -> tuple[str, ...]:
        """The bytes by dtype, and where the figures come from."""
        by_dtype = _bytes_by_width(self.model)
        bytes_text = ", ".join(f"{in_bytes:,.0f} at {width}" for width, in_bytes in by_dtype.items())
        return (f"bytes by width of a parameter: {bytes_text}", f"source: {self.model.source}")

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def _rows(self) -> list[dict[str, Cell]]:
        model = self.model
        rows = [_group_row(group) for group in _groups(model)]
        return rows + [_group_row(group, "mtp ") for group in _groups(model.mtp)] if model.mtp else rows

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        """The columns, at most `size` groups at a time."""
        rows = self._rows
        for start in range(0, len(rows), size):
            yield {key: [row.get(key) for row in rows[start : start + size]] for key in self.keys}


def _bytes_by_width(model: ModelShape) -> dict[str, float]:
    """Stored bytes by width and compute dtype, the largest first."""
    sums: dict[str, float] = {}
    groups: list[WeightGroup | ExpertGroup] = [*model.weights, *model.experts]
    for group in groups:
        label = f"{group.bytes_per_param:.4g} B computed in {group.compute_dtype}"
        sums[label] = sums.get(label, 0.0) + group.stored_params * group.bytes_per_param
    return dict(sorted(((label, total) for label, total in sums.items() if total), key=lambda item: -item[1]))


def _groups(model: ModelShape) -> list[_Group]:
    return [*model.weights, *model.experts, *model.attention, *model.states]


def _group_row(group: _Group, prefix: str = "") -> dict[str, Cell]:
    if isinstance(group, WeightGroup):
        return {
            "part": prefix + group.name,
            "stored_params": group.stored_params,
            "read_params": group.read_params,
            "multiplied_params": group.multiplied_params,
            "bytes_per_param": group.bytes_per_param,
            "compute_dtype": group.compute_dtype,
            "bytes": group.stored_params * group.bytes_per_param,
        }
    if isinstance(group, ExpertGroup):
        return {
            "part": f"{prefix}experts",
            "layers": group.n_layers,
            "stored_params": group.stored_params,
            "read_params": group.active_params,
            "multiplied_params": group.active_params,
            "bytes_per_param": group.bytes_per_param,
            "compute_dtype": group.compute_dtype,
            "bytes": group.stored_params * group.bytes_per_param,
            "experts": group.n_experts,
            "top_k": group.top_k,
        }
    if isinstance(group, AttentionGroup):
        return {
            "part": f"{prefix}cache {group.name}",
            "layers": group.n_layers,
            "kv_bytes_per_token": group.kv_bytes_per_token,
            "flops_per_pair": group.flops_per_pair,
            "kv_heads": group.kv_heads,
            "window": group.window,
            "attended": group.top_k,
            "tokens_per_entry": group.tokens_per_entry,
        }
    return {"part": f"{prefix}state {group.name}", "layers": group.n_layers, "state_bytes": group.state_bytes}
