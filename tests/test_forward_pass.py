"""Every component of a forward pass against sums done by hand, on a device of round numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from specmath.errors import InputError
from specmath.execution import DeviceRates, Efficiency, Layout
from specmath.model import AttentionGroup, ExpertGroup, ModelShape, StateGroup, WeightGroup
from specmath.model_counts import model_from_counts
from specmath.roofline import ForwardPass, PassPart

RATES = DeviceRates(
    memory_bytes_per_s=1000.0, flops_per_s={"bf16": 4000.0, "fp8": 8000.0}, link_bytes_per_s=100.0
)


def weights(
    params: int, *, width: float = 2.0, dtype: str = "bf16", looked_up: int = 0, name: str = "mlp"
) -> WeightGroup:
    return WeightGroup(
        name=name,
        stored_params=params + looked_up,
        read_params=params,
        multiplied_params=params,
        bytes_per_param=width,
        compute_dtype=dtype,
    )


DENSE = weights(100)  # 200 bytes, 200 FLOPs per token
PACKED = weights(160, width=0.5, name="attention")  # 80 bytes, 320 FLOPs per token
NARROW = weights(160, width=1.0, dtype="fp8", name="shared_experts")  # 160 bytes, 320 FLOPs at the fp8 rate
EXPERTS = ExpertGroup(
    n_layers=2, n_experts=8, top_k=2, params_per_expert=10, bytes_per_param=1.0, compute_dtype="fp8"
)
FULL = AttentionGroup(
    name="full", n_layers=1, kv_elements_per_entry=10, kv_bytes_per_element=2.0, flops_per_pair=40, kv_heads=2
)
WINDOW = AttentionGroup(
    name="window",
    n_layers=1,
    kv_elements_per_entry=10,
    kv_bytes_per_element=2.0,
    flops_per_pair=40,
    kv_heads=2,
    window=8,
)
SPARSE = AttentionGroup(
    name="mla",
    n_layers=1,
    kv_elements_per_entry=10,
    kv_bytes_per_element=2.0,
    flops_per_pair=40,
    kv_heads=1,
    top_k=6,
)
COMPRESSED = AttentionGroup(
    name="compressed_4",
    n_layers=1,
    kv_elements_per_entry=10,
    kv_bytes_per_element=2.0,
    flops_per_pair=40,
    kv_heads=1,
    tokens_per_entry=4,
)
STATE = StateGroup(name="mamba2", n_layers=2, state_bytes=30)


def shape(*groups: WeightGroup, **others: Any) -> ModelShape:
    return ModelShape(
        name="toy", source="typed in a test", weights=groups, hidden=5, n_layers=2, vocab=7, **others
    )


def run(model: ModelShape, layout: Layout | None = None, **efficiency: Any) -> ForwardPass:
    return ForwardPass(
        model=model, rates=RATES, layout=layout or Layout(), efficiency=Efficiency(**efficiency)
    )


def part_of(forward: ForwardPass, name: str, batch: float, tokens: float, context: float = 0) -> PassPart:
    (found,) = (part for part in forward.parts(batch, tokens, context) if part.name == name)
    return found


@dataclass(frozen=True)
class Worked:
    """One component of one pass: what a device moves and multiplies, and for how long."""

    name: str
    forward: ForwardPass
    part: str
    cell: tuple[float, float, float]  # batch, tokens per sequence, context
    bytes: float
    flops: float
    seconds: float


WORKED = [
    # Dense: 200 + 80 = 280 bytes, (200 + 320)/4000 = 0.13 s per token. Two components of their own would
    # take max(0.2, 0.1) + max(0.08, 0.16) = 0.36 s.
    Worked("dense groups add up first", run(shape(DENSE, PACKED)), "dense", (2, 1, 0), 280, 1040, 0.28),
    Worked("dense by FLOPs", run(shape(DENSE, PACKED)), "dense", (1, 3, 0), 280, 1560, 0.39),
    # 200/4000 + 320/8000 = 0.09 s per token: each dtype at its own peak.
    Worked("dense of two dtypes", run(shape(DENSE, NARROW)), "dense", (5, 2, 0), 360, 5200, 0.9),
    Worked("a table is looked up", run(shape(weights(100, looked_up=50))), "dense", (1, 1, 0), 200, 200, 0.2),
    Worked("dense over tp", run(shape(DENSE, PACKED), Layout(tp=4)), "dense", (3, 1, 0), 70, 390, 0.0975),
    Worked("dense over pp", run(shape(DENSE, PACKED), Layout(pp=4)), "dense", (3, 1, 0), 280, 1560, 0.39),
    Worked("dense over dp", run(shape(DENSE, PACKED), Layout(dp=3)), "dense", (9, 1, 0), 280, 1560, 0.39),
    # 7 sequences on 3 ranks: the busiest has 3.
    Worked("the busiest rank", run(shape(DENSE, PACKED), Layout(dp=3)), "dense", (7, 1, 0), 280, 1560, 0.39),
    # Experts at t = 2: U = 8·(1 − (3/4)²) = 3.5 of 10 bytes in 2 layers; 2·2·10 FLOPs per token and layer.
    Worked("experts touched", run(shape(DENSE, experts=(EXPERTS,))), "experts", (2, 1, 0), 70, 160, 0.07),
    Worked("experts by tokens", run(shape(DENSE, experts=(EXPERTS,))), "experts", (1, 2, 0), 70, 160, 0.07),
    # x = 1/2, B = 1, q = 3: routed as 1·(1 + 2/2) = 2 tokens, multiplied as 3.
    Worked(
        "experts that overlap",
        run(shape(DENSE, experts=(EXPERTS,)), expert_overlap=0.5),
        *("experts", (1, 3, 0), 70, 240, 0.07),
    ),
    # t = 100: all 8 experts (up to 1e-12), 160 bytes; 80·100 FLOPs at 8000/s.
    Worked("experts by FLOPs", run(shape(DENSE, experts=(EXPERTS,))), "experts", (100, 1, 0), 160, 8000, 1.0),
    Worked(
        "experts over tp",
        run(shape(DENSE, experts=(EXPERTS,)), Layout(tp=4)),
        *("experts", (2, 1, 0), 17.5, 40, 0.0175),
    ),
    Worked(
        "experts over ep < tp",
        run(shape(DENSE, experts=(EXPERTS,)), Layout(tp=4, ep=2)),
        *("experts", (2, 1, 0), 35, 80, 0.035),
    ),
    # dp = 2: a rank has 1 sequence, the experts on its device see both and are halved.
    Worked(
        "experts under dp see all",
        run(shape(DENSE, experts=(EXPERTS,)), Layout(dp=2)),
        *("experts", (2, 1, 0), 35, 80, 0.035),
    ),
    # dp·tp = 4, ep = 4: the experts of one device are a quarter.
    Worked(
        "experts under dp and ep",
        run(shape(DENSE, experts=(EXPERTS,)), Layout(tp=2, dp=2, ep=4)),
        *("experts", (2, 1, 0), 17.5, 40, 0.0175),
    ),
    # Attention at B = 3, q = 2: 3·(10 + 2)·20 bytes; 40·3·2·(10 + 1.5) FLOPs.
    Worked("attention", run(shape(DENSE, attention=(FULL,))), "attention, full", (3, 2, 10), 720, 2760, 0.72),
    # A window of 8: 3·(8 + 2)·20 bytes; 40·6·(8 + 1.5) FLOPs.
    Worked(
        "window full",
        run(shape(DENSE, attention=(WINDOW,))),
        *("attention, window", (3, 2, 10), 600, 2280, 0.6),
    ),
    # Below its window: 3·(5 + 2)·20 bytes; 40·6·(5 + 1.5) FLOPs.
    Worked(
        "window not full",
        run(shape(DENSE, attention=(WINDOW,))),
        *("attention, window", (3, 2, 5), 420, 1560, 0.42),
    ),
    # Re-read half: 1 + 0.5·(2 − 1) = 1.5 times, 3·(15 + 2)·20 bytes. FLOPs are as ever.
    Worked(
        "cache re-read in part",
        run(shape(DENSE, attention=(FULL,)), kv_reread=0.5),
        *("attention, full", (3, 2, 10), 1020, 2760, 1.02),
    ),
    # Re-read in full, q = 4: 3·(4·10 + 4)·20 bytes; 40·12·(10 + 2.5) FLOPs.
    Worked(
        "cache re-read per token",
        run(shape(DENSE, attention=(FULL,)), kv_reread=1.0),
        *("attention, full", (3, 4, 10), 2640, 6000, 2.64),
    ),
    # Two heads on four ranks: bytes halve, FLOPs quarter.
    Worked(
        "KV heads replicated",
        run(shape(DENSE, attention=(FULL,)), Layout(tp=4)),
        *("attention, full", (3, 2, 10), 360, 690, 0.36),
    ),
    # dp = 3: one of three sequences on each rank, whole.
    Worked(
        "attention over dp",
        run(shape(DENSE, attention=(FULL,)), Layout(dp=3)),
        *("attention, full", (3, 2, 10), 240, 920, 0.24),
    ),
    # An indexer keeps 6 of 10: 1·(6 + 2)·20 bytes; 40·2·(6 + 1.5) FLOPs.
    Worked(
        "attention to the chosen",
        run(shape(DENSE, attention=(SPARSE,))),
        *("attention, mla", (1, 2, 10), 160, 600, 0.16),
    ),
    # Four tokens an entry: 40/4 = 10 entries read, 2/4 written, 10.5·20 bytes; 40·2·(10 + 1.5) FLOPs.
    Worked(
        "compressed cache",
        run(shape(DENSE, attention=(COMPRESSED,))),
        *("attention, compressed_4", (1, 2, 40), 210, 920, 0.23),
    ),
    # State: read, written, and 3 snapshots after the further tokens: 3·30·(2 + 3) bytes.
    Worked("state, q = 4", run(shape(DENSE, states=(STATE,))), "state", (3, 4, 99), 450, 0, 0.45),
    Worked("state, q = 1", run(shape(DENSE, states=(STATE,))), "state", (3, 1, 0), 180, 0, 0.18),
    Worked(
        "state without snapshots",
        run(shape(DENSE, states=(STATE,)), state_snapshots=False),
        *("state", (3, 4, 0), 180, 0, 0.18),
    ),
    Worked(
        "states of two groups over tp",
        run(shape(DENSE, states=(STATE, STATE)), Layout(tp=3)),
        *("state", (3, 4, 0), 300, 0, 0.3),
    ),
    # tp = 4, t = 6: a message is 6·5·2 = 60 bytes, of which 2·3/4 pass the link, in 2 reductions of 2 layers.
    Worked("all-reduce", run(shape(DENSE), Layout(tp=4)), "communication", (3, 2, 0), 360, 0, 3.6),
    # The same, and 4 times 0.5 s.
    Worked(
        "all-reduce with latency",
        run(shape(DENSE), Layout(tp=4), link_latency_s=0.5),
        *("communication", (3, 2, 0), 360, 0, 5.6),
    ),
    # pp = 3: two hops of 60 bytes.
    Worked(
        "hops between stages",
        run(shape(DENSE), Layout(pp=3), link_latency_s=0.5),
        *("communication", (3, 2, 0), 120, 0, 2.2),
    ),
    # dp = 2: 2 of 3 sequences on the busier rank, 4 tokens, message 40 bytes. A token's 4 experts sit on 2
    # ranks at most, half of them its own: one copy, there and back in 2 layers, 4·40 bytes in 4 exchanges.
    Worked(
        "all-to-all",
        run(shape(DENSE, experts=(replace(EXPERTS, top_k=4),)), Layout(dp=2), link_latency_s=0.5),
        *("communication", (3, 2, 0), 160, 0, 3.6),
    ),
    # Dense ranks side by side have nothing to tell each other.
    Worked(
        "dp of a dense model",
        run(shape(DENSE), Layout(dp=2), link_latency_s=0.5),
        *("communication", (6, 1, 0), 0, 0, 0),
    ),
    # All at once, tp = 2, dp = 2, pp = 2, t = 3 a rank, message 30 bytes: 4 reductions of 2·1/2, 4 exchanges
    # of 2·3/4 shared by 2 ranks, one hop: 30·(4 + 3 + 1) bytes, 9 collectives.
    Worked(
        "all layouts at once",
        run(shape(DENSE, experts=(EXPERTS,)), Layout(tp=2, dp=2, pp=2), link_latency_s=0.5),
        *("communication", (6, 1, 0), 240, 0, 6.9),
    ),
]


@pytest.mark.parametrize("row", WORKED, ids=lambda row: row.name)
def test_a_component_is_the_sum_done_by_hand(row: Worked) -> None:
    part = part_of(row.forward, row.part, *row.cell)
    assert float(part.bytes) == pytest.approx(row.bytes, rel=1e-11)
    assert float(part.flops) == pytest.approx(row.flops, rel=1e-12)
    assert float(part.seconds) == pytest.approx(row.seconds, rel=1e-11)


WHOLE = run(
    shape(DENSE, PACKED, experts=(EXPERTS,), attention=(FULL, WINDOW), states=(STATE,)),
    Layout(tp=2),
    sharpness=2.0,
    link_latency_s=0.5,
    activation_bytes=1.0,
    kernels_per_layer=3.0,
    kernel_gap_s=0.01,
    pass_overhead_s=0.125,
)


def test_a_whole_pass_is_the_sum_of_its_components() -> None:
    """B = 2, q = 2, C = 10 on two ranks; the seconds of every component are √(bytes² + FLOPs²)."""

    def both(bytes_: float, flops_s: float) -> float:
        return float(np.hypot(bytes_ / 1000, flops_s))

    expected = [
        both(140, 4 * 0.13 / 2),
        both(2 * 8 * (1 - 0.75**4) * 10 / 2, 4 * 80 / 2 / 8000),
        both(2 * (10 + 2) * 20 / 2, 40 * 4 * (10 + 1.5) / 2 / 4000),
        both(2 * (8 + 2) * 20 / 2, 40 * 4 * (8 + 1.5) / 2 / 4000),
        2 * (2 + 1) * 30 / 2 / 1000,
        4 * 5 * 2 / 1000,  # activations: 1 byte · hidden · layers · t
        4 * (4 * 5 * 2 * 2 * (1 / 2) / 100 + 0.5),
        2 * 3 * 0.01 + 0.125,  # all captured: 6 kernels and the overhead
    ]
    parts = WHOLE.parts(2, 2, 10)
    names = "dense experts attention,_full attention,_window state activations communication overhead"
    assert [part.name for part in parts] == [name.replace("_", " ") for name in names.split()]
    assert [float(part.seconds) for part in parts] == pytest.approx(expected, rel=1e-13)
    assert WHOLE.time(2, 2, 10) == pytest.approx(sum(expected), rel=1e-13)


def test_batch_tokens_and_context_broadcast_to_the_cells_one_by_one() -> None:
    batch, tokens, context = np.arange(1, 4), np.array([[1.0], [2.5]]), np.array([[[0]], [[7]], [[99]]])
    grid = WHOLE.time(batch, tokens, context)
    assert isinstance(grid, np.ndarray)
    assert grid.shape == (3, 2, 3)
    for c, q, b in np.ndindex(grid.shape):
        alone = WHOLE.time(int(batch[b]), float(tokens[q, 0]), int(context[c, 0, 0]))
        assert isinstance(alone, float)
        assert grid[c, q, b] == alone


@pytest.mark.parametrize(
    ("batch", "latency", "bound"),
    [(1, 0.0, "bytes"), (4, 0.0, "bytes"), (5, 0.0, "FLOPs")],
    ids=["bytes", "a tie counts as bytes", "FLOPs"],
)
def test_what_bounds_a_component(batch: int, latency: float, bound: str) -> None:
    assert str(part_of(run(shape(DENSE)), "dense", batch, 1).bound) == bound


def test_what_takes_time_without_bytes_or_flops_is_bound_by_latency() -> None:
    forward = run(shape(DENSE), pass_overhead_s=1.0)
    assert str(part_of(forward, "overhead", 1, 1).bound) == "latency"
    assert list(part_of(run(shape(DENSE)), "dense", 1, [1, 9]).bound) == ["bytes", "FLOPs"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: run(shape(DENSE)).time(0, 1, 0), "batch"),
        (lambda: run(shape(DENSE)).time(1, 0.5, 0), "tokens"),
        (lambda: run(shape(DENSE)).time(1, 1, -1), "context"),
        (lambda: run(shape(DENSE)).parts(1, float("nan"), 0), "tokens"),
        (lambda: ForwardPass(model=model_from_counts("7B"), rates=RATES).time(1, 1, 1), "context"),
    ],
)
def test_what_is_wrong_is_refused_by_name(call: Any, name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: "):
        call()


@pytest.mark.parametrize("layout", [Layout(tp=2), Layout(dp=2), Layout(pp=2)], ids=["tp", "dp", "pp"])
def test_several_devices_want_a_link(layout: Layout) -> None:
    alone = DeviceRates(memory_bytes_per_s=1000.0, flops_per_s={"bf16": 4000.0})
    with pytest.raises(InputError, match=r"^link: "):
        ForwardPass(model=shape(DENSE), rates=alone, layout=layout)
    assert ForwardPass(model=shape(DENSE), rates=alone).time(1, 1, 0) == 0.2


def test_counts_alone_split_over_ranks_without_communication() -> None:
    rates = DeviceRates(memory_bytes_per_s=1e12, flops_per_s={"bf16": 100e12})
    forward = ForwardPass(model=model_from_counts("70B"), rates=rates, layout=Layout(tp=2))
    assert forward.time(1, 1, 0) == pytest.approx(0.07, rel=1e-15)
