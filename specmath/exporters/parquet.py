"""Parquet, a row group per chunk; what JSON says before its rows stands in the file's metadata.

A column's type is known only at the end: it may be empty for a million rows and hold numbers after them.
The types of the first chunk are nearly always right, so they are tried first; rows that do not fit widen
them, and the file is begun again.

Importing this module imports pyarrow, an optional dependency.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specmath.exporters.json_rows import heading
from specmath.results import Cell, Result, cells

METADATA_KEY: Final = "specmath"
"""The metadata entry that holds schema, version, inputs, assumptions and warnings, as JSON."""

_Types = Mapping[str, Any]


def write(result: Result, file: BinaryIO, explain: bool = False) -> None:
    """All rows: base units, full precision, null where a value does not exist."""
    metadata = {METADATA_KEY: json.dumps(heading(result, explain), allow_nan=False)}
    types: _Types = dict.fromkeys(result.keys, pa.null())
    while (wider := _attempt(result, file, types, metadata)) is not None:
        types = wider
        file.seek(0)
        file.truncate()


def _attempt(result: Result, file: BinaryIO, types: _Types, metadata: dict[str, str]) -> _Types | None:
    """Writes all rows and returns None, or stops where rows do not fit and returns the types they need."""
    chunks = result.chunks()
    first = next(chunks, dict.fromkeys(result.keys, ()))
    types = _widened(types, {key: _array(first[key]) for key in types})
    schema = pa.schema([(key, _settled(kind)) for key, kind in types.items()], metadata=metadata)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for chunk in chain([first], chunks):
            arrays = {key: _array(chunk[key]) for key in types}
            needed = _widened(types, arrays)
            if needed != types:
                return needed
            fitted = [_fitted(arrays[field.name], chunk[field.name], field.type) for field in schema]
            writer.write_table(pa.Table.from_arrays(fitted, schema=schema))
    return None


def _array(column: np.ndarray[Any, Any] | Sequence[Cell]) -> pa.Array:
    """A column in its own type; as text where its cells are of several kinds."""
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "if":
        mask = ~np.isfinite(column)
        return pa.array(column.astype(column.dtype.kind + "8"), mask=mask if mask.any() else None)
    values = cells(column)
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError):
        return pa.array(map(_text, values), pa.string())


def _fitted(array: pa.Array, column: np.ndarray[Any, Any] | Sequence[Cell], kind: Any) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_string(kind):
        return pa.array(map(_text, cells(column)), kind)
    return array.cast(kind, safe=False)  # whole numbers as doubles, beyond 2**53 the nearest


def _text(value: Cell) -> str | None:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return None if value is None else json.dumps(value)


def _widened(types: _Types, arrays: Mapping[str, pa.Array]) -> _Types:
    return {key: _wider(kind, arrays[key].type) for key, kind in types.items()}


def _wider(one: Any, other: Any) -> Any:
    """The narrowest type that holds both."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_wider(one.value_type, other.value_type))
    return pa.string()


def _settled(kind: Any) -> Any:
    """A type to write: a column without any value counts as numbers."""
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    return pa.float64() if pa.types.is_null(kind) else kind
