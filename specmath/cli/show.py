"""`specmath show`: what is in the catalogue?"""

from __future__ import annotations

from typing import Annotated

import typer

from specmath.cli.options import OutputOptions, with_options

show = typer.Typer(no_args_is_help=True, help="What is in the catalogue?")


@show.command("hardware")
@with_options
def hardware(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One accelerator in full.")] = None,
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
    else:
        emit(hardware_sheet(load_hardware(name, hardware_file=hardware_file)), output)
