"""Forward passes of a model over slots, in one of three regimes.

eager        every kernel launched from Python
cuda-graph   the pass captured once per shape and replayed: launches cost next to nothing
compile      torch.compile, once per shape
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from calibrate.attention import folded_mask, query_groups
from calibrate.checkpoints import SERVER_REMEDY
from calibrate.slots import LayerShape, SlotPool, Slots as Slots, empty_slots
from calibrate.timing import out_of_memory_reason
from specmath.calibrations import REGIMES
from specmath.errors import AccessError, DataError, InputError

FULL: Final = "full_attention"
WINDOWED: Final = "sliding_attention"
MAX_CAPTURED_WIDTH: Final = 64
"""Tokens of a sequence in a captured pass at most; wider ones read prompts, once, and run eagerly."""
_MAX_RECOMPILES: Final = 4_096
_CAPTURE_WARM_UPS: Final = 3


class Runner(Protocol):
    """A model that runs passes over slots."""

    @property
    def vocabulary(self) -> int:
        """Width V of the logits."""

    @property
    def device(self) -> torch.device:
        """Where tokens and positions have to lie."""

    def slots(self, batch: int, length: int) -> Slots:
        """Room for the keys and values of `batch` sequences of at most `length` tokens each."""

    def logits(self, slots: Slots, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits [B, q, V] in float32 of `tokens` [B, q], put at positions[b] … positions[b] + q − 1.

        A token attends to all positions up to its own. What lay at those positions is overwritten, so that a
        rollback is nothing but a smaller position. Sequences may stand at different positions.
        """


class ModelRunner:
    """A transformers causal language model as a `Runner`.

    Attributes:
        model: The model, in evaluation mode as loading leaves it.
        regime: One of `specmath.calibrations.REGIMES`.
        layers: What each layer keeps of a token.
        pool: Memory that all shapes of `shared_slots` are views of.
        captured_tokens: Tokens of the largest pass captured so far, all sequences together; 0 for none.

    Raises:
        InputError: an unknown regime.
        AccessError: graphs without a CUDA device; no working compiler.
        DataError: a model that keeps something else than keys and values.
    """

    def __init__(self, model: PreTrainedModel, *, name: str = "model", regime: str = "eager") -> None:
        if regime not in REGIMES:
            raise InputError("regime", f"must be one of {', '.join(REGIMES)}, got {regime!r}")
        self.model, self.name, self.regime = model, name, regime
        if regime == "cuda-graph" and self.device.type != "cuda":
            raise AccessError("cuda-graph", f"needs a CUDA device, {name} runs on {self.device}; use eager")
        self._cache_argument = _cache_argument(model)
        self._windows, self._masks_by_kind = mask_windows(model, name)
        self._groups = query_groups(model)
        self._shown = torch.zeros((), dtype=model.dtype, device=self.device)
        self._hidden = self._shown + torch.finfo(model.dtype).min
        self.layers = layer_shapes(model, name)
        self.pool = SlotPool(self.layers, self.device)
        self.captured_tokens = 0
        self._logits = torch.empty(0, device=self.device)
        self._graph_pool: Any = None
        self._run = _compiled(self._pass) if regime == "compile" else self._pass

    @property
    def vocabulary(self) -> int:
        """Width V of the logits."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return torch.device(self.model.device)

    @property
    def has_windows(self) -> bool:
        """Whether a layer sees a window only; it reads the whole slots nevertheless, behind a mask."""
        return any(window is not None for window in self._windows.values())

    def slots(self, batch: int, length: int) -> Slots:
        """Room with memory of its own for `batch` sequences of at most `length` tokens."""
        return empty_slots(batch, length, self.layers, self.device)

    def shared_slots(self, batch: int, length: int) -> Slots:
        """Room in memory that all shared slots overlap in: for timing, where the content does not matter."""
        return self.pool.slots(batch, length)

    @torch.inference_mode()
    def logits(self, slots: Slots, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits [B, q, V] in float32; see `Runner`.

        A pass takes the time of the whole length of the slots, however few of them are filled.
        """
        width = tokens.shape[1]
        if self.regime != "cuda-graph" or width > MAX_CAPTURED_WIDTH:
            return self._guarded(slots, tokens, positions)
        if width not in slots.replays:
            slots.replays[width] = self._captured(slots, tokens, positions)
        replay: Callable[[Tensor, Tensor], Tensor] = slots.replays[width]
        return replay(tokens, positions)

    def _guarded(self, slots: Slots, tokens: Tensor, positions: Tensor) -> Tensor:
        if self.regime != "compile":
            return self._run(slots, tokens, positions)
        try:
            return self._run(slots, tokens, positions)
        except Exception as error:
            if type(error).__module__.startswith(("torch._inductor", "torch._dynamo")):
                raise _no_compiler(error) from error
            raise

    def _pass(self, slots: Slots, tokens: Tensor, positions: Tensor) -> Tensor:
        return self._model_logits(slots, tokens, positions).float()

    def _model_logits(self, slots: Slots, tokens: Tensor, positions: Tensor) -> Tensor:
        places = positions[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        slots.write_at(places)
        arguments = {
            "input_ids": tokens,
            "position_ids": places,
            "attention_mask": self._mask(slots, places),
            self._cache_argument: slots.cache,
            "use_cache": True,
        }
        logits: Tensor = self.model(**arguments).logits
        return logits

    def _mask(self, slots: Slots, places: Tensor) -> Tensor | dict[str, Tensor]:
        masks = {kind: self._added(slots.mask(places, window)) for kind, window in self._windows.items()}
        return masks if self._masks_by_kind else next(iter(masks.values()))

    def _added(self, visible: Tensor) -> Tensor:
        """What is added to the scores; of booleans every layer would make the same anew."""
        mask = torch.where(visible, self._shown, self._hidden)
        return mask if self._groups == 1 else folded_mask(mask, self._groups)

    def reserve_logits(self, tokens: int) -> None:
        """Take the memory that captured passes of up to `tokens` tokens share for their logits."""
        if self.regime == "cuda-graph" and tokens * self.vocabulary > self._logits.numel():
            self._logits = torch.empty(tokens * self.vocabulary, device=self.device)

    def _captured(
        self, slots: Slots, tokens: Tensor, positions: Tensor
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """The pass of this shape as a graph over tensors that stay where they are."""
        still_tokens, still_positions = tokens.clone(), positions.clone()
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(_CAPTURE_WARM_UPS):
                self._pass(slots, still_tokens, still_positions)
        torch.cuda.current_stream(self.device).wait_stream(side)
        self._graph_pool = self._graph_pool or torch.cuda.graph_pool_handle()
        self.reserve_logits(tokens.numel())
        output = self._logits[: tokens.numel() * self.vocabulary].view(*tokens.shape, -1)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._graph_pool):
                output.copy_(self._model_logits(slots, still_tokens, still_positions))
        except RuntimeError as error:
            if out_of_memory_reason(error):
                raise
            text = str(error).splitlines()[0][:150]
            raise AccessError("cuda-graph", f"{self.name} cannot be captured: {text}; use eager") from error

        self.captured_tokens = max(self.captured_tokens, tokens.numel())

        def replay(tokens: Tensor, positions: Tensor) -> Tensor:
            still_tokens.copy_(tokens)
            still_positions.copy_(positions)
            graph.replay()
            return output.clone()  # the next replay of any shape writes over the same memory

        return replay


def layer_shapes(model: PreTrainedModel, name: str) -> tuple[LayerShape, ...]:
    """What each layer keeps of a token, seen by running one.

    Raises:
        DataError: a layer that keeps a state or something else that cannot be rolled back.
    """
    cache = DynamicCache(config=model.config)
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    with torch.inference_mode():
        model(input_ids=token, use_cache=True, **{_cache_argument(model): cache})
    shapes = []
    for number, layer in enumerate(cache.layers):
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        is_plain = type(layer).__name__ in ("DynamicLayer", "DynamicSlidingWindowLayer")
        if not is_plain or keys is None or values is None or keys.shape[:3:2] != (1, 1):
            problem = f"layer {number} keeps {type(layer).__name__}, which a static cache cannot roll back"
            raise DataError(name, f"{problem}; {SERVER_REMEDY}")
        shapes.append(LayerShape(keys.shape[1], keys.shape[3], values.shape[3], keys.dtype))
    if not shapes:
        raise DataError(name, f"keeps no keys and values; {SERVER_REMEDY}")
    return tuple(shapes)


def mask_windows(model: PreTrainedModel, name: str) -> tuple[Mapping[str, int | None], bool]:
    """The window of each kind of layer (None: all), and whether the model takes a mask for each kind.

    Raises:
        DataError: layers of several kinds in a model that takes one mask, or of a kind that is not known.
    """
    config = model.config.get_text_config()
    by_kind = ", dict)" in inspect.getsource(inspect.unwrap(type(model.base_model).forward))
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ()) - {"dense", "sparse"}
    if not by_kind and not kinds:
        return {FULL if window is None else WINDOWED: window}, False
    strange = sorted(kinds - {FULL, WINDOWED})
    if strange or (len(kinds) > 1 and not by_kind):
        raise DataError(name, f"has layers of {', '.join(strange or sorted(kinds))}; {SERVER_REMEDY}")
    windows = {kind: window if kind == WINDOWED else None for kind in sorted(kinds or {FULL})}
    return windows, by_kind


@torch.inference_mode()
def require_agreement(runner: ModelRunner, *, tokens: int = 8, tolerance: float = 0.1) -> None:
    """Compare passes over slots, a rollback among them, with one plain pass of the model without a cache.

    Args:
        runner: What to check; its regime plays no part.
        tokens: Length of the two random texts.
        tolerance: Largest difference over the spread of the logits; rounding in 16 bits is far below it.

    Raises:
        DataError: they differ, so that this family keeps its cache in a way that is not known here.
    """
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(runner.vocabulary, (2, tokens), generator=generator).to(runner.device)
    plain = runner.model(input_ids=text, use_cache=False).logits.float()
    slots, half = runner.slots(2, tokens + 1), tokens // 2
    start = torch.zeros(2, dtype=torch.long, device=runner.device)
    runner._pass(slots, text.flip(1), start)  # a draft that is rejected whole
    first = runner._pass(slots, text[:, :half], start)
    second = runner._pass(slots, text[:, half:], start + half)
    worst = (torch.cat([first, second], dim=1) - plain).abs().max() / plain.std()
    if not worst <= tolerance:
        problem = f"passes over a static cache differ from a plain pass by {float(worst):.2g} of their spread"
        raise DataError(runner.name, f"{problem}; {SERVER_REMEDY}")


def _cache_argument(model: PreTrainedModel) -> str:
    """`cache`, or `past_key_values` as older versions of transformers call it."""
    return "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"


def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    import torch._dynamo  # heavy: only where something is compiled

    torch._dynamo.config.recompile_limit = _MAX_RECOMPILES  # every shape is compiled by itself
    torch._dynamo.config.accumulated_recompile_limit = _MAX_RECOMPILES
    compiled: Callable[..., Tensor] = torch.compile(function, dynamic=False)
    return compiled


def _no_compiler(error: Exception) -> AccessError:
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return AccessError("compile", f"torch.compile does not work here: {text[:150]}; use eager")
