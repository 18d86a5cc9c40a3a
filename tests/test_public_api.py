"""`specmath.__all__` is the documented API, lazily loaded, and what the golden values ask for is in it."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import specmath

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = json.loads((ROOT / "tests" / "data" / "closed_form.json").read_text())


def test_all_is_sorted_complete_and_resolves() -> None:
    assert list(specmath.__all__) == ["__version__", *sorted(set(specmath.__all__) - {"__version__"})]
    for name in specmath.__all__:
        assert getattr(specmath, name) is not None
    assert set(dir(specmath)) == set(specmath.__all__)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "specmath" / "__init__.pyi").read_text())
    seen = {
        alias.asname: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = {name: f"specmath.{module}" for name, module in specmath._HOME_OF.items()}
    assert seen == homes


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sped_up'"):
        specmath.sped_up  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", [name for name in specmath.__all__ if name != "__version__"])
def test_every_public_name_is_documented(name: str) -> None:
    assert (getattr(specmath, name).__doc__ or "").strip()
    assert f"`{name}" in (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def golden_id(row: dict[str, Any]) -> str:
    return (
        f"{row['fn']}-{'-'.join(str(value) for key, value in row.items() if key not in ('fn', 'value'))[:40]}"
    )


@pytest.mark.parametrize("row", GOLDEN, ids=golden_id)
def test_golden_values_through_the_public_names(row: dict[str, Any]) -> None:
    asked = dict(row)
    function, value = getattr(specmath, asked.pop("fn")), asked.pop("value")
    fields = {key: asked.pop(key) for key in ("standard_error", "acceptance_length") if "drafts" in row}
    answer = function(**asked)
    if fields:
        assert {key: getattr(answer, key) for key in fields} == pytest.approx(fields, rel=1e-12)
        answer = answer.alpha
    tolerance = 1e-9 if row["fn"] == "alpha_from_acceptance_length" else 1e-12
    assert answer == pytest.approx(value, rel=tolerance)


def test_all_golden_rows_are_here() -> None:
    assert len(GOLDEN) == 124
    assert Counter(row["fn"] for row in GOLDEN)["expected_tokens"] == 24
