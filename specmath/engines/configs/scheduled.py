"""A plan together with the config that carries it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from specmath.engines.configs.making import engine_config
from specmath.engines.configs.record import TARGET, EngineConfig, Policy
from specmath.errors import InputError
from specmath.results import CHUNK_ROWS, Advice, Block, Cell, Columns, Result
from specmath.schedule import ScheduleTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredSchedule(Result):
    """The table of a plan, and what to paste for its first set-up.

    Attributes:
        table: The plan.
        config: The config.
    """

    schema: ClassVar[str] = ScheduleTable.schema
    keys: ClassVar[tuple[str, ...]] = ScheduleTable.keys
    data_keys: ClassVar[tuple[str, ...]] = ScheduleTable.data_keys

    table: ScheduleTable
    config: EngineConfig

    def __len__(self) -> int:
        return len(self.table)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        return dict(self.table.inputs) | dict(self.config.inputs)

    @property
    def assumptions(self) -> tuple[str, ...]:
        leading, *others = self.table.assumptions
        return (leading, *self.config.assumptions, *others)

    @property
    def warnings(self) -> tuple[Advice, ...]:
        found = [*self._tree_warnings(), *self.config.warnings, *self.table.warnings]
        setups = len(self.table.policies)
        if setups > 1 and self.config.blocks:
            text = f"the config is that of the first of {setups} set-ups"
            found.insert(
                0, Advice(code="first-set-up", text=text, remedy="plan one acceptance at one context")
            )
        return tuple(dict.fromkeys(found))

    def _tree_warnings(self) -> Iterator[Advice]:
        """No config here draws a tree."""
        k = max(step.k for step in self.config.steps)
        width = int(self.table.acceptance.law(0).at(float(self.table.context[0])).width(k))
        if self.config.blocks and width != k + 1:
            yield Advice(
                code="tree-not-written",
                text=f"the plan is of a tree of {width - 1} nodes, the config of a chain of {k} draft tokens",
                remedy="plan a chain with --alpha or --rates; SGLang takes trees: --speculative-eagle-topk "
                f"above 1 and --speculative-num-draft-tokens {width}, the root counted",
            )

    @property
    def verdict(self) -> str:
        return self.table.verdict

    @property
    def derivation(self) -> tuple[str, ...]:
        return self.table.derivation

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.config.blocks

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        return self.table.chunks(size)


def configured_schedule(
    table: ScheduleTable,
    engine: str,
    *,
    policy: Policy | None = None,
    method: str = "draft-model",
    target: str = TARGET,
    draft: str | None = None,
    data_parallel: int = 1,
    pipeline_parallel: int = 1,
) -> ConfiguredSchedule:
    """A plan with the config of what it recommends, or of the policy that is asked for.

    Args:
        table: The plan; its first set-up is written out.
        engine: `NAME[@VERSION]` as in `engine_config`.
        policy: `static`, `tiers` or `adaptive`; None for what the verdict recommends.
        method, target, draft, data_parallel, pipeline_parallel: As in `engine_config`.

    Raises:
        InputError: as in `engine_config`, or where the plan has no such policy.
    """
    rows = {row.policy: row for row in table.policies[0]}
    asked: Policy = policy or ("tiers" if table.recommended[0].policy == "tiers" else "static")
    if asked == "adaptive" and "adaptive" not in rows:
        raise InputError(
            "policy", "adaptive verification is planned for chains of draft tokens, not for trees"
        )
    k, adaptive_k = (rows[name].k or 0 if name in rows else 0 for name in ("static", "adaptive"))
    tiers = table.tiers[0]
    config = engine_config(
        engine,
        tiers,
        k=k,
        adaptive_k=adaptive_k,
        policy=asked,
        method=method,
        target=target,
        draft=draft,
        survival=_survival(table, max(k, adaptive_k, *(row.k or 0 for row in tiers))),
        data_parallel=data_parallel,
        pipeline_parallel=pipeline_parallel,
    )
    return ConfiguredSchedule(table=table, config=config)


def _survival(table: ScheduleTable, k: int) -> tuple[float, ...]:
    """What the first law expects of a chain of k; nothing of a tree."""
    law = table.acceptance.law(0).at(float(table.context[0]))
    if not k or int(law.width(k)) != k + 1:
        return ()
    return tuple(law.survival(k).ravel().tolist())
