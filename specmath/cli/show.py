"""`specmath show`: what is in the catalogue?"""

from __future__ import annotations

from typing import Annotated

import typer

from specmath.cli.options import (
    DeviceOptions,
    OutputOptions,
    engine_completion,
    hardware_completion,
    model_completion,
    with_options,
)
from specmath.errors import InputError

show = typer.Typer(no_args_is_help=True, help="What is in the catalogue?")


@show.command("hardware")
@with_options
def hardware(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="One accelerator in full.", autocompletion=hardware_completion),
    ] = None,
    hardware_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="YAML that adds or overrides accelerators.")
    ] = None,
    vendor: Annotated[str | None, typer.Option(metavar="VENDOR", help="List this vendor only.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="gpu|cpu|…", help="List this kind only: gpu, cpu, soc, apu, npu, tpu."),
    ] = None,
    *,
    output: OutputOptions,
) -> None:
    """Accelerators: peaks by dtype, bandwidth, ridge, memory, link, source, confidence."""
    from specmath.catalogue import load_hardware
    from specmath.cli.output import emit
    from specmath.hardware_tables import hardware_sheet, list_hardware

    if name is None:
        emit(list_hardware(vendor=vendor, kind=kind, hardware_file=hardware_file), output)
    elif strays := [word for word, value in {"vendor": vendor, "kind": kind}.items() if value is not None]:
        raise InputError(strays[0], "filters the list; leave it out beside a NAME")
    else:
        emit(hardware_sheet(load_hardware(name, hardware_file=hardware_file)), output)


@show.command("profile")
@with_options
def profile(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[ENGINE]",
            help="Constants of one profile, as typical or vllm.",
            autocompletion=engine_completion,
        ),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With the measurements of this accelerator.",
            autocompletion=hardware_completion,
        ),
    ] = None,
    hardware_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="YAML that adds or overrides profiles.")
    ] = None,
    *,
    output: OutputOptions,
) -> None:
    """Profiles of engines: each constant with its low and high end, its source and how it was read."""
    from specmath.catalogue import load_hardware
    from specmath.cli.output import emit
    from specmath.profile_catalogue import load_profile
    from specmath.profile_tables import list_profiles, profile_sheet

    if name is None and hardware is not None:
        raise InputError("hardware", "belongs to one profile; name it, as in `show profile vllm`")
    if name is None:
        emit(list_profiles(hardware_file=hardware_file), output)
        return
    part = None if hardware is None else load_hardware(hardware, hardware_file=hardware_file)
    emit(profile_sheet(load_profile(name, part, hardware_file=hardware_file), part), output)


@show.command("model")
@with_options
def model(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="One model in full: a catalogue name, hub id, config.json or its folder, - for stdin, 70B.",
            autocompletion=model_completion,
        ),
    ] = None,
    match: Annotated[
        str | None, typer.Option(metavar="TEXT", help="List names with this text, or a*pattern.")
    ] = None,
    drafts: Annotated[
        bool | None, typer.Option("--drafts/--models", help="List draft heads or models only.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="DTYPE", help="Count it in bf16, fp16 or fp32.")
    ] = None,
    quantization: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="Layer weights in fp8, int8, int4, nf4, nvfp4, mxfp4."),
    ] = None,
    kv_cache_dtype: Annotated[
        str | None, typer.Option(metavar="DTYPE", help="KV cache in fp8, int8, …")
    ] = None,
    *,
    output: OutputOptions,
) -> None:
    """Models: parameters stored, read and multiplied, cache and state, what was assumed."""
    from specmath.cli.models import model as named_model
    from specmath.cli.output import emit
    from specmath.model_tables import list_models, model_sheet

    if name is None:
        emit(list_models(match, drafts=drafts), output)
        return
    if strays := [word for word, value in {"match": match, "drafts": drafts}.items() if value is not None]:
        raise InputError(strays[0], "filters the list; leave it out beside a MODEL")
    formats = DeviceOptions(dtype=dtype, quantization=quantization, kv_cache_dtype=kv_cache_dtype)
    emit(model_sheet(named_model("target", name, formats)), output)


@show.command("pass")
@with_options
def forward_pass(
    target: Annotated[
        str, typer.Option(metavar="MODEL", help="The model.", autocompletion=model_completion)
    ] = "70B",
    batch: Annotated[str, typer.Option(metavar="B", help="Sequences in the pass.")] = "1",
    tokens: Annotated[
        str, typer.Option(metavar="q", help="Tokens per sequence: 1 for a plain step, k + 1 to verify k.")
    ] = "1",
    context: Annotated[str, typer.Option(metavar="C", help="Tokens in the KV cache, per sequence.")] = "0",
    *,
    device: DeviceOptions,
    output: OutputOptions,
) -> None:
    """One forward pass taken apart: bytes, FLOPs, time and bound of each component."""
    from specmath.cli.cases import source_cases
    from specmath.cli.models import model as named_model
    from specmath.cli.output import emit
    from specmath.cli.text import parse_count, parse_number
    from specmath.drafters.lookup import Lookup
    from specmath.pass_table import take_apart
    from specmath.profiled_source import Profiled

    leading = source_cases(named_model("target", target, device), Lookup(), device)[0]
    source = leading.typical if isinstance(leading, Profiled) else leading
    table = take_apart(
        source.target_pass(),
        part=source.accelerator,
        batch=parse_count("batch", batch),
        tokens=parse_number("tokens", tokens),
        context=parse_number("context", context),
        name=source.case,
        described=source.described,
    )
    emit(table, output)
