"""What engines that can be told one k and nothing else have in common."""

from __future__ import annotations

from collections.abc import Callable

from specmath.engines.configs.record import Answer, Wanted, instead_of, refused, static_steps
from specmath.results import Advice, Block

Written = tuple[tuple[Block, ...], tuple[Advice, ...]]
"""What is pasted, and what belongs to it."""


def one_k(
    title: str, methods: tuple[str, ...], write: Callable[[Wanted], Written]
) -> Callable[[Wanted], Answer]:
    """`configure` of an engine that knows one k alone."""

    def configure(wanted: Wanted) -> Answer:
        if wanted.method not in methods:
            return refused(wanted, title, "no such drafter", f"choose one of {', '.join(methods)}")
        notes = (
            [] if wanted.policy == "static" else [instead_of(wanted, title, "it has no schedule by batch")]
        )
        if not wanted.k:
            return Answer(policy=None, advice=tuple(notes))
        blocks, advice = write(wanted)
        return Answer(policy="static", steps=static_steps(wanted.k), blocks=blocks, advice=(*notes, *advice))

    return configure
