"""transformers: the generation config of assisted generation."""

from __future__ import annotations

import json
from typing import Any, Final

from specmath.engines.configs.one_k import Written, one_k
from specmath.engines.configs.record import LAYER, Engine, Wanted
from specmath.results import Advice, Block


def _transformers(wanted: Wanted) -> Written:
    alone = Advice(
        code="batch-one",
        text="assisted generation of transformers runs one sequence at a time"
        + (
            ""
            if wanted.planned is None or wanted.planned[1] == 1
            else f"; batches up to {wanted.planned[1]} are planned"
        ),
        remedy="read the plan at batch 1, or take a serving engine",
    )
    settings: dict[str, Any]
    if wanted.method == "ngram":
        settings, whose, argument = {"prompt_lookup_num_tokens": wanted.k}, "target", ""
    else:
        settings = {
            "num_assistant_tokens": wanted.k,
            "num_assistant_tokens_schedule": "constant",
            "assistant_confidence_threshold": 0.0,
        }
        whose = "draft" if wanted.method == "draft-model" else "target"
        argument = ", assistant_model=draft" if whose == "draft" else f", assistant_early_exit={LAYER}"
    python = [
        "# the defaults (heuristic schedule, threshold 0.4) change k from step to step",
        f"{whose}.generation_config.update(**{settings!r})",
        f"target.generate(**inputs{argument})",
    ]
    blocks = (
        Block(f"generation_config.json of the {whose}", "json", json.dumps(settings)),
        Block("or in the program", "python", "\n".join(python[1:] if wanted.method == "ngram" else python)),
    )
    return blocks, (alone,)


ENGINE: Final = Engine(
    "transformers",
    (((0,), "4.57 to 5.23"),),
    (4, 57),
    (5, 23),
    one_k("transformers", ("draft-model", "ngram", "early-exit"), _transformers),
)
