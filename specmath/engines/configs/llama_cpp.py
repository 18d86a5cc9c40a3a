"""llama.cpp: flags of `llama-server`, which were renamed between 2025 and 2026; no schedule by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specmath.engines.configs.record import (
    Answer,
    Engine,
    Wanted,
    instead_of,
    quoted,
    refused,
    shell,
    static_steps,
    synthetic_rates,
)
from specmath.results import Advice, Block

_FAMILIES: Final = (((0,), "of 2025"), ((2026,), "of 2026"))
_TYPES: Final = {
    "draft-model": "draft-simple",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
    "ngram": "ngram-simple",
}
_WITHOUT_MODEL: Final = ("mtp", "ngram")


def configure(wanted: Wanted) -> Answer:
    """Flags of `llama-server`."""
    old = not wanted.since(2026)
    known = ("draft-model",) if old else tuple(_TYPES)
    if wanted.method not in known:
        remedy = f"choose one of {', '.join(known)}" + ("; a server of 2026 has more" if old else "")
        return refused(wanted, "llama.cpp", "no such drafter in the server", remedy)
    notes = (
        [] if wanted.policy == "static" else [instead_of(wanted, "llama.cpp", "it has no schedule by batch")]
    )
    if not wanted.k:
        return Answer(policy=None, advice=tuple(notes))
    server = _server(wanted, old)
    return Answer(
        policy="static",
        steps=static_steps(wanted.k),
        blocks=(
            Block("server", "sh", shell(server, *_files(wanted))),
            *([] if old else _test(wanted, server)),
        ),
        advice=(*notes, *_notes(wanted, old)),
    )


def _server(wanted: Wanted, old: bool) -> list[str]:
    model = f"-m {quoted(wanted.target)}"
    needs_draft = wanted.method not in _WITHOUT_MODEL or (wanted.method == "mtp" and wanted.draft is not None)
    draft = [f"-md {quoted(wanted.draft_name)}"] if needs_draft else []
    if old:
        lengths = [f"--draft-max {wanted.k}", "--draft-min 0", "--draft-p-min 0"]
    elif wanted.method == "ngram":
        lengths = ["--spec-type ngram-simple", f"--spec-ngram-simple-size-m {wanted.k}"]
    else:
        lengths = [f"--spec-type {_TYPES[wanted.method]}", f"--spec-draft-n-max {wanted.k}"]
    return [f"llama-server {model}", *draft, *lengths]


def _files(wanted: Wanted) -> tuple[str, ...]:
    """A reminder where a name is no file of the kind that is wanted."""
    names = (wanted.target, *(() if wanted.method == "ngram" else (wanted.draft_name,)))
    return () if all(name.endswith(".gguf") for name in names) else ("models are GGUF files",)


def _test(wanted: Wanted, server: list[str]) -> Iterator[Block]:
    survival = wanted.survival[: wanted.k]
    if len(survival) < wanted.k or wanted.method == "ngram":
        return
    rates = ",".join(f"{rate:g}" for rate in synthetic_rates(survival))
    yield Block(
        "test of the forecast (its output is rubbish: never serve it)",
        "sh",
        shell(
            [*server, f"--spec-synth-rates {rates}"],
            "from 2026-08 on (PR 27711): accepts as forecast, whatever the draft says; compare tok/s",
        ),
    )


def _notes(wanted: Wanted, old: bool) -> Iterator[Advice]:
    if old:
        yield Advice(
            code="flags-renamed",
            text="--draft-max and its kin were removed in 2026; a newer server refuses them and names the "
            "new flag",
            remedy="for a newer server name it: llama.cpp@2026",
        )
    elif _may_be_older(wanted):
        yield Advice(
            code="flags-renamed",
            text="the flags were renamed between 2025-08 and 2026-10; on which side "
            f"{wanted.version_text} stands was not found out",
            remedy=f"where --spec-draft-n-max is refused, use -md … --draft-max {wanted.k}",
        )
    if wanted.method == "draft-model":
        yield Advice(
            code="acceptance-rule",
            text="draft-simple accepts a draft token where the target's own sample is the draft's "
            "likeliest token; α from an engine with rejection sampling does not carry over at temperature "
            "above 0",
            remedy="take α from this engine's own timings",
        )


def _may_be_older(wanted: Wanted) -> bool:
    """A build has no date, and a month before 2026-10 may be of either side; a bare year names the flags."""
    version = wanted.version
    if version is None or (version.build is None and version.is_release(2026)):
        return False
    return version.build is not None or not version.at_least(2026, 10)


ENGINE: Final = Engine("llama.cpp", _FAMILIES, (2025,), (2026, 10), configure)
