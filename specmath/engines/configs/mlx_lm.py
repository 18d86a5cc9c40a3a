"""mlx-lm: flags of its server."""

from __future__ import annotations

from typing import Final

from specmath.engines.configs.one_k import Written, one_k
from specmath.engines.configs.record import Engine, Wanted, quoted, shell
from specmath.results import Block


def _mlx_lm(wanted: Wanted) -> Written:
    command = [
        f"mlx_lm.server --model {quoted(wanted.target)}",
        f"--draft-model {quoted(wanted.draft_name)}",
        f"--num-draft-tokens {wanted.k}",
    ]
    return (Block("server", "sh", shell(command)),), ()


ENGINE: Final = Engine(
    "mlx-lm", (((0,), "0.32"),), (0, 32), (0, 32), one_k("mlx-lm", ("draft-model",), _mlx_lm)
)
