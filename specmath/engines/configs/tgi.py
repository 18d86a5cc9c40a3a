"""TGI: `--speculate`, with Medusa heads or n-grams."""

from __future__ import annotations

from typing import Final

from specmath.engines.configs.one_k import Written, one_k
from specmath.engines.configs.record import Engine, Wanted, quoted, shell
from specmath.results import Advice, Block


def _tgi(wanted: Wanted) -> Written:
    command = [f"text-generation-launcher --model-id {quoted(wanted.target)}", f"--speculate {wanted.k}"]
    note = Advice(
        code="speculate-picks-the-drafter",
        text="--speculate drafts with Medusa heads where the model has them, else with n-grams; nothing "
        "else can be had",
        remedy="read in the start-up log which of the two it is",
    )
    return (Block("server", "sh", shell(command)),), (note,)


ENGINE: Final = Engine("tgi", (((0,), "3.3"),), (3, 3), (3, 3), one_k("TGI", ("medusa", "ngram"), _tgi))
