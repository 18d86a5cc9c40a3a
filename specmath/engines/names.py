"""Names of engines as `--engine NAME[@VERSION]` takes them, and the profile that stands for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from specmath.errors import InputError, UnknownNameError, shown

if TYPE_CHECKING:
    from specmath.engines.configs.versions import Version

HOMES: Final = {
    "vllm": ("vllm", "vllm"),
    "sglang": ("sglang", "sglang"),
    "tensorrt-llm": ("tensorrt_llm", "tensorrt-llm"),
    "llama.cpp": ("llama_cpp", "llama.cpp"),
    "lmdeploy": ("lmdeploy", "typical"),
    "tgi": ("tgi", "typical"),
    "mlx": ("mlx_lm", "mlx"),
    "transformers": ("transformers", "transformers"),
}
"""File of each engine, and the efficiency profile that stands for it."""
_ALIASES: Final = {
    "mlx-lm": "mlx",
    "trtllm": "tensorrt-llm",
    "trt-llm": "tensorrt-llm",
    "llamacpp": "llama.cpp",
}
CONFIG_ENGINES: Final = tuple(HOMES)
"""Names of the engines that a config can be written for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """What `--engine NAME[@VERSION]` means.

    Attributes:
        profile: The efficiency profile.
        name: Name of the engine that a config can be written for; None for a profile of no engine.
        version: The version; None where none was given.
    """

    profile: str
    name: str | None = None
    version: Version | None = None


def parse_engine(text: str) -> EngineChoice:
    """An engine and its version from `NAME[@VERSION]`; a profile of no engine takes no version.

    Raises:
        InputError: for a version that cannot be read.
        UnknownNameError: for a version of an engine that is not known.

    >>> choice = parse_engine("vllm@0.32.1rc1")
    >>> choice.profile, choice.version.release
    ('vllm', (0, 32, 1))
    >>> parse_engine("tgi").profile
    'typical'
    """
    name, at, version = text.strip().partition("@")
    name = _ALIASES.get(name.lower(), name.lower())
    if name not in HOMES:
        if at and name in ("ideal", "typical", "cpu"):
            raise InputError(
                "engine", f"{name} is no engine and has no version; leave out {shown(at + version)}"
            )
        if at:
            raise UnknownNameError(
                "engine", name, CONFIG_ENGINES, f"versions are known of {', '.join(CONFIG_ENGINES)}"
            )
        return EngineChoice(profile=name)
    profile = HOMES[name][1]
    if not at:
        return EngineChoice(profile=profile, name=name)
    from specmath.engines.configs.versions import dated_version, numbered_version  # only where one is read

    read = dated_version if name == "llama.cpp" else numbered_version
    return EngineChoice(profile=profile, name=name, version=read(version))
