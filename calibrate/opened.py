"""A pair that is ready to be measured: models, tokenizers, and what runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from calibrate.drafters import Drafter, LookupDrafter, ModelDrafter, Texts
from calibrate.grid import Grid, Models, default_grid
from calibrate.host_steps import HostSteps
from calibrate.machine import (
    Facts,
    catalogue_device,
    free_bytes,
    load_average,
    machine_facts,
    set_threads,
)
from calibrate.models import RANDOM, LoadedModel, load_pass_model, model_shape
from calibrate.pairs import compared_pair, language_of, load_tokenizer
from calibrate.passes import Passes
from calibrate.prompts import EncodedPrompt, Prompt, builtin_prompts, encoded_prompts, read_prompts
from calibrate.request_counts import samplings
from calibrate.requests import SYNTHETIC_ALPHA, Request
from calibrate.runners import ModelRunner, require_agreement
from calibrate.sampling import Sampling
from calibrate.timing import ClockTimer, CudaTimer, Timer, Work
from specmath.errors import AccessError, DataError, InputError, shown, shown_path
from specmath.results import Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPair:
    """The pair of a request, loaded.

    Attributes:
        request: What is asked.
        target: The target.
        draft: The draft model; None for a lookup.
        target_runner: Runs the target.
        draft_runner: Runs the draft.
        tokenizer: Of the target; None for random weights.
        vocabulary: Tokens that both models share.
        facts: What runs them.
        threads: Of torch.
        load: Of the machine before they were loaded.
        free_bytes: Memory free before they were loaded.
        texts: The prompts of the request.
        end_tokens: Tokens that end a text.
        warnings: What was found on the way.
    """

    request: Request
    target: LoadedModel
    draft: LoadedModel | None
    target_runner: ModelRunner
    draft_runner: ModelRunner | None
    tokenizer: Any
    vocabulary: int
    facts: Facts
    threads: int
    load: float
    free_bytes: float | None
    texts: tuple[Prompt, ...] = ()
    end_tokens: tuple[int, ...] = ()
    warnings: tuple[Advice, ...] = field(default=())

    @property
    def device(self) -> torch.device:
        """Where both run."""
        return self.target_runner.device

    @property
    def is_random(self) -> bool:
        """Whether the weights mean nothing, so that no text can be judged."""
        return self.tokenizer is None

    @property
    def synthetic_alpha(self) -> float | None:
        """Of the coins that stand for acceptance where weights are random."""
        return SYNTHETIC_ALPHA if self.is_random and self.draft is not None else None

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen in the host's share of a step, and in the proof."""
        return samplings(self.request.temperatures, self.request.top_ps)[-1]

    def eager_runners(self) -> tuple[ModelRunner, ModelRunner | None]:
        """Target and draft without graphs: texts of every length would each need graphs of their own."""
        if self.target_runner.regime == "eager":
            return self.target_runner, self.draft_runner
        draft = None if self.draft is None else ModelRunner(self.draft.model, name=self.draft.name)
        return ModelRunner(self.target.model, name=self.target.name), draft

    @property
    def drafter(self) -> Drafter:
        """What drafts."""
        if self.draft_runner is None:
            return LookupDrafter()
        return ModelDrafter(self.draft_runner, self.vocabulary)

    @property
    def timer(self) -> Timer:
        """Times work on the device."""
        if self.device.type == "cuda":
            return CudaTimer(self.device)
        if self.device.type == "mps":
            return ClockTimer(synchronise=torch.mps.synchronize)
        return ClockTimer()

    @property
    def models(self) -> Models:
        """Shapes and memory, for the grid."""
        draft = None if self.draft is None else self.draft.shape
        return Models(target=self.target.shape, draft=draft, free_bytes=self.free_bytes)

    @property
    def expert_counts(self) -> tuple[int, int] | None:
        """Routed experts of a layer and how many a token visits; None for a dense target."""
        experts = self.target.shape.experts if self.target.shape else ()
        return (experts[0].n_experts, experts[0].top_k) if experts else None

    def grid(self) -> Grid:
        """What is to be timed."""
        request = self.request
        return default_grid(
            self.models,
            on_gpu=self.device.type == "cuda",
            batches=request.batches,
            contexts=request.contexts,
            ks=chains(request.ks, request.quick),
            quick=request.quick,
        )

    def passes(self) -> Passes:
        """What prepares the places of the grid."""
        host = HostSteps(
            vocabulary=self.target_runner.vocabulary,
            draft_vocabulary=self.vocabulary,
            device=self.device,
            sampling=self.sampling,
            synthetic_alpha=self.synthetic_alpha,
            is_lookup=self.draft_runner is None,
            seed=self.request.seed,
        )
        return Passes(
            target=self.target_runner,
            draft=self.draft_runner,
            lookup=self._lookup if self.draft_runner is None else None,
            plain_host=host.plain,
            step_host=host.speculative,
            seed=self.request.seed,
        )

    def _lookup(self, batch: int, k: int, context: int) -> Work:
        """The search for k tokens in `batch` texts of `context` tokens."""
        generator = torch.Generator().manual_seed(self.request.seed)
        tokens = torch.randint(self.vocabulary, (batch, context), generator=generator)
        texts, drafter = Texts(tokens.tolist(), k + 1, self.device), LookupDrafter()
        chance = torch.Generator(self.device)
        return lambda: drafter.draft(texts, k, self.sampling, chance)

    def prompts(self, most_tokens: int) -> tuple[tuple[EncodedPrompt, ...], tuple[Advice, ...]]:
        """The prompts of the request as tokens of the target."""
        return encoded_prompts(self.texts, self.tokenizer, most_tokens=most_tokens)


def open_pair(request: Request) -> OpenPair:
    """Load the models of a request and make sure that they can be measured together.

    Raises:
        AccessError: a model cannot be found; no such device.
        DataError: a model cannot be run here, or the two do not speak one language.
        InputError: options that do not go together.
    """
    device = chosen_device(request.device)
    regime = chosen_regime(request, device)
    for name in request.models:
        model_shape(name)  # a broken config.json says more than the tokenizer that it breaks
    texts = asked_texts(request)
    threads = set_threads(request.threads)
    free, load = free_bytes(device), load_average()
    tokenizer, shared, warnings = _language(request)
    target = load_pass_model(request.target, device=device, dtype=request.dtype)
    draft = None if request.is_lookup else load_pass_model(request.draft, device=device, dtype=target.dtype)
    runner = ModelRunner(target.model, name=request.target, regime=regime)
    draft_runner = None if draft is None else ModelRunner(draft.model, name=request.draft, regime=regime)
    runners = [one for one in (runner, draft_runner) if one is not None]
    for one in runners:
        require_agreement(one)
    facts = machine_facts(device, threads=threads, dtype=target.dtype, attention=target.attention)
    widths = [one.vocabulary for one in runners]
    ends, strange = end_tokens(target, runner.vocabulary)
    return OpenPair(
        request=request,
        target=target,
        draft=draft,
        target_runner=runner,
        draft_runner=draft_runner,
        tokenizer=tokenizer,
        vocabulary=min([*widths, *([shared] if shared else [])]),
        facts=facts | _longest(target, draft),
        threads=threads,
        load=load,
        free_bytes=free,
        texts=texts,
        end_tokens=ends,
        warnings=(*warnings, *strange),
    )


def asked_texts(request: Request) -> tuple[Prompt, ...]:
    """The prompts of a request, the packaged ones where it names none; raises what reading them does."""
    return builtin_prompts() if request.prompts is None else read_prompts(request.prompts)


def end_tokens(target: LoadedModel, vocabulary: int) -> tuple[tuple[int, ...], tuple[Advice, ...]]:
    """Tokens that end a text, and a warning on those that no text can hold.

    Raises:
        DataError: they are no numbers.
    """
    settings = target.model.generation_config
    told = None if settings is None else settings.eos_token_id
    ends = list(told) if isinstance(told, list | tuple) else [] if told is None else [told]
    for one in ends:
        if type(one) is not int:
            where = shown_path(f"{target.folder or target.name}/generation_config.json")
            raise DataError(
                where, f"eos_token_id: must be a token id or a list of them, got {shown(str(one))}"
            )
    strange = [one for one in ends if not 0 <= one < vocabulary]
    if not strange:
        return tuple(ends), ()
    note = Advice(
        code="strange-end-token",
        text=f"eos_token_id {strange[0]} of the target is outside its vocabulary of {vocabulary:,} tokens, "
        "and ends no text",
        remedy="check generation_config.json",
    )
    return tuple(one for one in ends if one not in strange), (note,)


def chosen_regime(request: Request, device: torch.device) -> str:
    """The regime asked for, or what suits the device.

    Raises:
        AccessError: graphs without a CUDA device.
    """
    if request.regime == "cuda-graph" and device.type != "cuda":
        raise AccessError(
            "cuda-graph", f"needs a CUDA device, and this is {device.type}; give --regime eager"
        )
    return request.regime or ("cuda-graph" if device.type == "cuda" else "eager")


def _longest(*models: LoadedModel | None) -> Facts:
    """Tokens that both models can read at most; nothing where neither says."""
    shapes = [one.shape for one in models if one is not None]
    limits = [shape.max_context for shape in shapes if shape is not None and shape.max_context]
    return {"max_context": min(limits)} if limits else {}


def chosen_device(name: str | None) -> torch.device:
    """The device of that name; without one the first CUDA device, or the CPU.

    Raises:
        InputError: no such kind of device.
        AccessError: there is none on this machine.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise _no_device(name) from None
    if device.type not in ("cpu", "cuda", "mps"):
        raise _no_device(name)
    devices = torch.cuda.device_count() if device.type == "cuda" else int(torch.backends.mps.is_available())
    if device.type != "cpu" and (device.index or 0) >= devices:
        here = f"torch sees {devices} of that kind here" if devices else "torch sees none of that kind here"
        raise AccessError(name, f"no such device: {here}; give --device cpu, or a torch built for it")
    return device


def _no_device(name: str) -> InputError:
    hint = "; for a part of the catalogue --dry-run plans alone" if catalogue_device(name) else ""
    return InputError("device", f"must be cpu, cuda, cuda:N or mps, got {shown(name)}{hint}")


def _language(request: Request) -> tuple[Any, int | None, tuple[Advice, ...]]:
    """The target's tokenizer, the tokens that the pair shares, warnings; no tokenizer of random weights."""
    names = request.models
    if any(name.startswith(RANDOM) for name in names):
        return None, None, ()
    tokenizers = [load_tokenizer(name) for name in names]
    if request.is_lookup:
        return tokenizers[0], None, ()
    languages = [language_of(name, one) for name, one in zip(names, tokenizers, strict=True)]
    shared, warnings = compared_pair(*languages)
    return tokenizers[0], shared, warnings


def chains(ks: Sequence[int], quick: bool) -> list[int]:
    """Draft lengths to time: those to be proved, one pass alone, and what lies between."""
    longest = max(ks)
    between = () if quick else (1 << power for power in range(longest.bit_length()))
    return sorted({1, *ks, *(k for k in between if k <= longest)})
