"""vLLM: all the ways in which it tells about speculation."""

from __future__ import annotations

from typing import Final

from specmath.engines.content import Format
from specmath.engines.vllm_documents import read_document
from specmath.engines.vllm_logs import VllmLog
from specmath.engines.vllm_metrics import read_exposition

FORMATS: Final = (
    Format(engine="vllm", name="vLLM metrics", read_exposition=read_exposition),
    Format(
        engine="vllm", name="vLLM response, `bench serve` or `get_metrics` JSON", read_document=read_document
    ),
    Format(engine="vllm", name="vLLM server log", log=VllmLog),
)
"""vLLM's formats."""
