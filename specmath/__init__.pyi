"""What type checkers see of the public names, which `specmath/__init__.py` loads on first use."""

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
from specmath.accuracy import (
    Rerun as Rerun,
    ScoredGroup as ScoredGroup,
    rerun_measurements as rerun_measurements,
)
from specmath.accuracy_tables import (
    AccuracyTable as AccuracyTable,
    LeftOutTable as LeftOutTable,
    PointTable as PointTable,
    accuracy_table as accuracy_table,
    left_out_table as left_out_table,
    point_table as point_table,
)
from specmath.adaptive import adaptive_acceptance_length as adaptive_acceptance_length
from specmath.additive import (
    AdditiveBreakeven as AdditiveBreakeven,
    AdditiveCost as AdditiveCost,
    additive_breakeven as additive_breakeven,
    critical_context as critical_context,
)
from specmath.additive_source import Additive as Additive
from specmath.anchors import Anchored as Anchored, anchored as anchored, leave_one_out as leave_one_out
from specmath.batch_files import read_batches as read_batches
from specmath.batch_policies import PolicyRow as PolicyRow
from specmath.best_trees import BestTree as BestTree
from specmath.beta_fits import fitted_beta as fitted_beta
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
from specmath.calibrated_source import Calibrated as Calibrated
from specmath.calibration_files import (
    read_calibration as read_calibration,
    write_calibration as write_calibration,
)
from specmath.calibration_tables import CalibrationTable as CalibrationTable, RunsTable as RunsTable
from specmath.calibrations import (
    AcceptanceRow as AcceptanceRow,
    Calibration as Calibration,
    Cell as Cell,
    FittedConstant as FittedConstant,
    MeasuredRuns as MeasuredRuns,
    PartFit as PartFit,
    Place as Place,
    ProofRow as ProofRow,
    RunLine as RunLine,
)
from specmath.catalogue import (
    hardware_catalogue as hardware_catalogue,
    hardware_names as hardware_names,
    load_hardware as load_hardware,
)
from specmath.clustered_errors import ratio_standard_error as ratio_standard_error
from specmath.comparisons import (
    Contender as Contender,
    DrafterComparison as DrafterComparison,
    compare_drafters as compare_drafters,
)
from specmath.compatibility.findings import Finding as Finding
from specmath.compatibility.question import check_speculation as check_speculation
from specmath.compatibility.table import CheckTable as CheckTable
from specmath.corrections import (
    Correction as Correction,
    Evidence as Evidence,
    Fit as Fit,
    Growth as Growth,
    chosen_correction as chosen_correction,
    fitted_correction as fitted_correction,
)
from specmath.counted_acceptance import (
    AlphaEstimate as AlphaEstimate,
    PositionCounts as PositionCounts,
    alpha_of_totals as alpha_of_totals,
    counts_by_position as counts_by_position,
    counts_of_cut_drafts as counts_of_cut_drafts,
)
from specmath.crossovers import CrossoverTable as CrossoverTable, find_crossovers as find_crossovers
from specmath.diagnosis.causes import Cause as Cause
from specmath.diagnosis.setup import Observed as Observed, SetUp as SetUp
from specmath.diagnosis.table import (
    CauseTable as CauseTable,
    DiagnosisTable as DiagnosisTable,
    diagnose as diagnose,
)
from specmath.drafters.assistant import Assistant as Assistant
from specmath.drafters.base import Drafter as Drafter, DraftWork as DraftWork
from specmath.drafters.block import DFlash as DFlash, Domino as Domino, DSpark as DSpark
from specmath.drafters.draft_model import DraftModel as DraftModel
from specmath.drafters.eagle import Eagle as Eagle
from specmath.drafters.eagle3 import Eagle3 as Eagle3
from specmath.drafters.early_exit import EarlyExit as EarlyExit
from specmath.drafters.lookup import Lookup as Lookup
from specmath.drafters.medusa import Medusa as Medusa
from specmath.drafters.methods import (
    derived_head as derived_head,
    drafter_of as drafter_of,
    infer_method as infer_method,
)
from specmath.drafters.mtp import Mtp as Mtp
from specmath.drafters.p_eagle import PEagle as PEagle
from specmath.drafters.parallel_model import ParallelModel as ParallelModel
from specmath.engines.alpha_table import AlphaTable as AlphaTable, alpha_table as alpha_table
from specmath.engines.configs.making import engine_config as engine_config
from specmath.engines.configs.record import EngineConfig as EngineConfig
from specmath.engines.configs.scheduled import (
    ConfiguredSchedule as ConfiguredSchedule,
    configured_schedule as configured_schedule,
)
from specmath.engines.estimates import (
    AcceptanceEstimate as AcceptanceEstimate,
    estimate_acceptance as estimate_acceptance,
)
from specmath.engines.fetching import Limits as Limits
from specmath.engines.history import History as History, Interval as Interval, ask_history as ask_history
from specmath.engines.project_file import ProjectFile as ProjectFile, project_file as project_file
from specmath.engines.recognition import read_telemetry as read_telemetry
from specmath.engines.server_telemetry import read_server as read_server, telemetry_of as telemetry_of
from specmath.engines.servers import Server as Server, ask_server as ask_server
from specmath.engines.source_law import SourceLaw as SourceLaw, source_law as source_law
from specmath.engines.telemetry import (
    Load as Load,
    ReportedRate as ReportedRate,
    RequestCounts as RequestCounts,
    Telemetry as Telemetry,
)
from specmath.engines.typed_counts import typed_counts as typed_counts
from specmath.engines.watching import watch_server as watch_server
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
from specmath.evidence import MeasuredEvidence as MeasuredEvidence, measured_evidence as measured_evidence
from specmath.execution import (
    IDEAL as IDEAL,
    DeviceRates as DeviceRates,
    Efficiency as Efficiency,
    HostTimes as HostTimes,
    Layout as Layout,
)
from specmath.experts import expected_experts as expected_experts
from specmath.flips import Flip as Flip, FlipTable as FlipTable, flip_points as flip_points
from specmath.forecast import SpeedupTable as SpeedupTable, forecast_speedup as forecast_speedup
from specmath.hardware_tables import (
    HardwareList as HardwareList,
    HardwareSheet as HardwareSheet,
    hardware_sheet as hardware_sheet,
    list_hardware as list_hardware,
)
from specmath.hf.reader import read_config as read_config
from specmath.k_lines import KLine as KLine, k_line as k_line, run_lines as run_lines
from specmath.laws import AcceptanceLaw as AcceptanceLaw
from specmath.measured_speedups import MeasuredSpeedup as MeasuredSpeedup
from specmath.measurement_files import (
    public_measurements as public_measurements,
    read_measurements as read_measurements,
)
from specmath.measurements import Measurement as Measurement, Run as Run, doubts as doubts, paired as paired
from specmath.measuring import next_measurement as next_measurement, undecided_batch as undecided_batch
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
from specmath.pass_errors import prediction_error as prediction_error
from specmath.pass_fits import (
    fitted_draft_law as fitted_draft_law,
    fitted_host_law as fitted_host_law,
    fitted_pass_law as fitted_pass_law,
)
from specmath.pass_laws import DraftLaw as DraftLaw, HostLaw as HostLaw, PassLaw as PassLaw
from specmath.pass_peaks import peak_fractions as peak_fractions
from specmath.pass_table import PassTable as PassTable, take_apart as take_apart
from specmath.policies import (
    best_static_k as best_static_k,
    mixed_speedup as mixed_speedup,
    plain_time_shares as plain_time_shares,
    schedule_regret as schedule_regret,
    tier_ks as tier_ks,
)
from specmath.profile_catalogue import load_profile as load_profile, profile_names as profile_names
from specmath.profile_tables import (
    ProfileList as ProfileList,
    ProfileSheet as ProfileSheet,
    list_profiles as list_profiles,
    profile_sheet as profile_sheet,
)
from specmath.profiled_source import Profiled as Profiled, forecast_cases as forecast_cases
from specmath.profiles import Constant as Constant, Profile as Profile
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
from specmath.results import Advice as Advice, Block as Block, Result as Result
from specmath.roofline import ForwardPass as ForwardPass, PassPart as PassPart
from specmath.roofline_source import Roofline as Roofline, roofline_cases as roofline_cases
from specmath.run_files import RunDefaults as RunDefaults, read_runs as read_runs
from specmath.schedule import ScheduleTable as ScheduleTable, plan_schedule as plan_schedule
from specmath.scoring import (
    Score as Score,
    anchored_predictions as anchored_predictions,
    left_out_line as left_out_line,
    left_out_ranges as left_out_ranges,
    range_floor as range_floor,
    score_predictions as score_predictions,
)
from specmath.setups import (
    Prediction as Prediction,
    predictions as predictions,
    profiled_of as profiled_of,
    roofline_of as roofline_of,
    textbook_speedup as textbook_speedup,
)
from specmath.sources import (
    BatchSource as BatchSource,
    Ratios as Ratios,
    StepCost as StepCost,
    StepTimeSource as StepTimeSource,
)
from specmath.strata import evidence_for as evidence_for, evidence_of as evidence_of
from specmath.tables import save as save, write as write
from specmath.token_yield import TokenTable as TokenTable, tokens_per_step as tokens_per_step
from specmath.trees import RankedTree as RankedTree, best_tree as best_tree, uniform_tree as uniform_tree

__version__: str
__all__: list[str]
_HOME_OF: dict[str, str]
