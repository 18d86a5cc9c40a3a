"""What readers take out of documents and samples that may hold anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from specmath.engines.content import Exposition, Sample
from specmath.engines.spec_counts import count, mean, total


def positive(value: Any) -> float | None:
    """A count or duration above 0.

    >>> positive(0), positive(2.5)
    (None, 2.5)
    """
    return count(value) or None


def text(value: Any) -> str | None:
    """A text that says something; None for anything else."""
    return value if isinstance(value, str) and value.strip() else None


def mapping(value: Any) -> Mapping[str, Any]:
    """The object itself; an empty one where it is no object."""
    return value if isinstance(value, dict) else {}


def objects(document: Any) -> list[Mapping[str, Any]]:
    """The objects of a document: itself, its entries, or the entries of its lists.

    >>> objects({"a": 1}), objects([{"a": 1}, [{"b": 2}], 3])
    ([{'a': 1}], [{'a': 1}, {'b': 2}])
    """
    if isinstance(document, dict):
        return [document]
    if not isinstance(document, list):
        return []
    entries: list[Any] = []
    for entry in document:
        entries.extend(entry if isinstance(entry, list) else (entry,))
    return [entry for entry in entries if isinstance(entry, dict)]


def dotted(version: str | None) -> tuple[int, ...]:
    """The numbers that a version begins with; empty where it begins with none.

    >>> dotted("0.5.9.post1"), dotted("v1.1.0rc5"), dotted("main")
    ((0, 5, 9), (1, 1, 0), ())
    """
    numbers: list[int] = []
    for part in (version or "").strip().removeprefix("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits or len(digits) > 6:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


# ---------------------------------------------------------------- samples of an exposition


def bare_name(name: str, engine: str) -> str | None:
    """A series' name without the engine's prefix, however collectors have written it; None for another's.

    >>> bare_name("sglang:token_usage", "sglang"), bare_name("ray_sglang_token_usage", "sglang")
    ('token_usage', 'token_usage')
    >>> bare_name("vllm:num_requests_running", "sglang") is None
    True
    """
    for separator in ":_":
        before, found, bare = name.partition(engine + separator)
        if found and bare and (not before or before.endswith("_")):
            return bare
    return None


def by_model(exposition: Exposition, engine: str) -> dict[str | None, list[Sample]]:
    """The engine's samples by the model they speak of, prefixes cut off."""
    models: dict[str | None, list[Sample]] = {}
    for sample in exposition.samples:
        bare = bare_name(sample.name, engine)
        if bare is not None:
            model = sample.labels.get("model_name") or sample.labels.get("model") or None
            models.setdefault(model, []).append(Sample(bare, sample.labels, sample.value))
    return models


def named(samples: Iterable[Sample], name: str) -> list[Sample]:
    """Those samples of that name that have a value."""
    return [sample for sample in samples if sample.name == name and isfinite(sample.value)]


def summed(samples: Iterable[Sample], name: str) -> float | None:
    """The sum of a series over its labels; None where it is absent."""
    return total(count(sample.value) for sample in named(samples, name))


def mean_observed(samples: Sequence[Sample], name: str) -> float | None:
    """The mean of what a histogram or summary observed."""
    return mean(summed(samples, f"{name}_sum"), summed(samples, f"{name}_count"))


def by_position(samples: Iterable[Sample], name: str, label: str) -> tuple[float, ...]:
    """A series by draft position, from position 0 to the first that is missing."""
    sums: dict[int, float] = {}
    for sample in named(samples, name):
        place, value = sample.labels.get(label, ""), count(sample.value)
        if place.isascii() and place.isdigit() and len(place) <= 3 and value is not None:
            sums[int(place)] = sums.get(int(place), 0.0) + value
    positions: list[float] = []
    while len(positions) in sums:
        positions.append(sums[len(positions)])
    return tuple(positions)


def percentile(tally: Mapping[float, float], share: float) -> float | None:
    """The smallest value that at least this share of a weighted tally does not exceed.

    >>> percentile({8: 19, 32: 1}, 0.95), percentile({}, 0.95)
    (8, None)
    """
    seen, whole = 0.0, sum(tally.values())
    for value in sorted(tally):
        seen += tally[value]
        if seen >= share * whole:
            return value
    return None
