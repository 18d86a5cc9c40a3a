"""LMDeploy: flags of its API server."""

from __future__ import annotations

from typing import Final

from specmath.engines.configs.one_k import Written, one_k
from specmath.engines.configs.record import Engine, Wanted, quoted, shell
from specmath.results import Block


def _lmdeploy(wanted: Wanted) -> Written:
    algorithm = {"mtp": "deepseek_mtp"}.get(wanted.method, wanted.method)
    comments = ["other MTP models: hy3_mtp, qwen3_5_mtp"] if wanted.method == "mtp" else []
    named = (
        []
        if wanted.method == "mtp" and wanted.draft is None
        else [f"--speculative-draft-model {quoted(wanted.draft_name)}"]
    )
    command = [
        f"lmdeploy serve api_server {quoted(wanted.target)}",
        f"--speculative-algorithm {algorithm}",
        *named,
        f"--speculative-num-draft-tokens {wanted.k}",
    ]
    return (Block("server", "sh", shell(command, *comments)),), ()


ENGINE: Final = Engine(
    "lmdeploy",
    (((0,), "0.16"),),
    (0, 16),
    (0, 16),
    one_k("LMDeploy", ("eagle", "eagle3", "mtp"), _lmdeploy),
)
