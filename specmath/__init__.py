"""specmath: does speculative decoding pay?

Public names are loaded on first use, so that `import specmath` imports neither numpy nor anything else heavy.
`__all__` is the documented API (docs/api.md); whatever a command prints, one of these functions returns.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specmath.accelerator import Accelerator as Accelerator
    from specmath.acceptance import (
        BetaAcceptance as BetaAcceptance,
        ConstantAcceptance as ConstantAcceptance,
        PositionAcceptance as PositionAcceptance,
        acceptance_ceiling as acceptance_ceiling,
        accepted_over_drafted as accepted_over_drafted,
        accepted_pmf as accepted_pmf,
        accepted_variance as accepted_variance,
        beta_expected_tokens as beta_expected_tokens,
        expected_tokens as expected_tokens,
    )
    from specmath.additive import (
        AdditiveBreakeven as AdditiveBreakeven,
        AdditiveCost as AdditiveCost,
        additive_breakeven as additive_breakeven,
        critical_context as critical_context,
    )
    from specmath.additive_source import Additive as Additive
    from specmath.best_trees import BestTree as BestTree
    from specmath.breakevens import (
        breakeven_acceptance_length as breakeven_acceptance_length,
        breakeven_alpha as breakeven_alpha,
        breakeven_draft_cost as breakeven_draft_cost,
        breakeven_draft_cost_from_acceptance_length as breakeven_draft_cost_from_acceptance_length,
        breakeven_verify_cost as breakeven_verify_cost,
        breakeven_verify_cost_from_acceptance_length as breakeven_verify_cost_from_acceptance_length,
        ridge_flops_per_byte as ridge_flops_per_byte,
        ridge_tokens as ridge_tokens,
        roofline_breakeven_batch as roofline_breakeven_batch,
        verify_bound_batch as verify_bound_batch,
    )
    from specmath.catalogue import (
        hardware_catalogue as hardware_catalogue,
        hardware_names as hardware_names,
        load_hardware as load_hardware,
    )
    from specmath.crossovers import CrossoverTable as CrossoverTable, find_crossovers as find_crossovers
    from specmath.errors import (
        AccessError as AccessError,
        DataError as DataError,
        InputError as InputError,
        SpecmathError as SpecmathError,
        UnknownNameError as UnknownNameError,
    )
    from specmath.estimation import (
        CounterEstimate as CounterEstimate,
        alpha_from_acceptance_length as alpha_from_acceptance_length,
        alpha_from_accepted_over_drafted as alpha_from_accepted_over_drafted,
        alpha_from_counters as alpha_from_counters,
    )
    from specmath.execution import (
        IDEAL as IDEAL,
        DeviceRates as DeviceRates,
        Efficiency as Efficiency,
        Layout as Layout,
    )
    from specmath.forecast import SpeedupTable as SpeedupTable, forecast_speedup as forecast_speedup
    from specmath.hardware_tables import (
        HardwareList as HardwareList,
        HardwareSheet as HardwareSheet,
        hardware_sheet as hardware_sheet,
        list_hardware as list_hardware,
    )
    from specmath.hf.reader import read_config as read_config
    from specmath.laws import AcceptanceLaw as AcceptanceLaw
    from specmath.memory import (
        Residents as Residents,
        sequence_bytes_per_device as sequence_bytes_per_device,
        weight_bytes_per_device as weight_bytes_per_device,
    )
    from specmath.mixtures import ContextAcceptance as ContextAcceptance, LookupAcceptance as LookupAcceptance
    from specmath.model import (
        AttentionGroup as AttentionGroup,
        ExpertGroup as ExpertGroup,
        ModelShape as ModelShape,
        StateGroup as StateGroup,
        WeightGroup as WeightGroup,
    )
    from specmath.model_catalogue import load_model as load_model, model_names as model_names
    from specmath.model_counts import counts_model as counts_model, model_from_counts as model_from_counts
    from specmath.model_tables import (
        ModelList as ModelList,
        ModelSheet as ModelSheet,
        list_models as list_models,
        model_sheet as model_sheet,
    )
    from specmath.pass_table import PassTable as PassTable, take_apart as take_apart
    from specmath.ratios import (
        best_k as best_k,
        compute_bound_speedup as compute_bound_speedup,
        kept_share as kept_share,
        leviathan_speedup as leviathan_speedup,
        lookup_speedup as lookup_speedup,
        lumped_speedup as lumped_speedup,
        operations_ratio as operations_ratio,
        speedup as speedup,
        speedup_from_acceptance_length as speedup_from_acceptance_length,
        step_cost as step_cost,
    )
    from specmath.results import Advice as Advice, Result as Result
    from specmath.roofline import (
        ForwardPass as ForwardPass,
        PassPart as PassPart,
        expected_experts as expected_experts,
    )
    from specmath.roofline_source import Roofline as Roofline, roofline_cases as roofline_cases
    from specmath.sources import (
        BatchSource as BatchSource,
        Ratios as Ratios,
        StepCost as StepCost,
        StepTimeSource as StepTimeSource,
    )
    from specmath.tables import save as save, write as write
    from specmath.token_yield import TokenTable as TokenTable, tokens_per_step as tokens_per_step
    from specmath.trees import RankedTree as RankedTree, best_tree as best_tree, uniform_tree as uniform_tree

__version__ = "0.1.0"

_HOMES = {
    "accelerator": ("Accelerator",),
    "acceptance": (
        "BetaAcceptance",
        "ConstantAcceptance",
        "PositionAcceptance",
        "acceptance_ceiling",
        "accepted_over_drafted",
        "accepted_pmf",
        "accepted_variance",
        "beta_expected_tokens",
        "expected_tokens",
    ),
    "additive": ("AdditiveBreakeven", "AdditiveCost", "additive_breakeven", "critical_context"),
    "additive_source": ("Additive",),
    "best_trees": ("BestTree",),
    "breakevens": (
        "breakeven_acceptance_length",
        "breakeven_alpha",
        "breakeven_draft_cost",
        "breakeven_draft_cost_from_acceptance_length",
        "breakeven_verify_cost",
        "breakeven_verify_cost_from_acceptance_length",
        "ridge_flops_per_byte",
        "ridge_tokens",
        "roofline_breakeven_batch",
        "verify_bound_batch",
    ),
    "catalogue": ("hardware_catalogue", "hardware_names", "load_hardware"),
    "crossovers": ("CrossoverTable", "find_crossovers"),
    "errors": ("AccessError", "DataError", "InputError", "SpecmathError", "UnknownNameError"),
    "estimation": (
        "CounterEstimate",
        "alpha_from_acceptance_length",
        "alpha_from_accepted_over_drafted",
        "alpha_from_counters",
    ),
    "execution": ("DeviceRates", "Efficiency", "IDEAL", "Layout"),
    "forecast": ("SpeedupTable", "forecast_speedup"),
    "hardware_tables": ("HardwareList", "HardwareSheet", "hardware_sheet", "list_hardware"),
    "hf.reader": ("read_config",),
    "laws": ("AcceptanceLaw",),
    "memory": ("Residents", "sequence_bytes_per_device", "weight_bytes_per_device"),
    "mixtures": ("ContextAcceptance", "LookupAcceptance"),
    "model": ("AttentionGroup", "ExpertGroup", "ModelShape", "StateGroup", "WeightGroup"),
    "model_catalogue": ("load_model", "model_names"),
    "model_counts": ("counts_model", "model_from_counts"),
    "model_tables": ("ModelList", "ModelSheet", "list_models", "model_sheet"),
    "pass_table": ("PassTable", "take_apart"),
    "ratios": (
        "best_k",
        "compute_bound_speedup",
        "kept_share",
        "leviathan_speedup",
        "lookup_speedup",
        "lumped_speedup",
        "operations_ratio",
        "speedup",
        "speedup_from_acceptance_length",
        "step_cost",
    ),
    "results": ("Advice", "Result"),
    "roofline": ("ForwardPass", "PassPart", "expected_experts"),
    "roofline_source": ("Roofline", "roofline_cases"),
    "sources": ("BatchSource", "Ratios", "StepCost", "StepTimeSource"),
    "tables": ("save", "write"),
    "token_yield": ("TokenTable", "tokens_per_step"),
    "trees": ("RankedTree", "best_tree", "uniform_tree"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'specmath' has no attribute {name!r}")
    value = getattr(import_module(f"specmath.{_HOME_OF[name]}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
