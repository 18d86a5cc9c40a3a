"""Options of `specmath load` alone: what arrives, what serves it, and what is asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from specmath.cli.options import Text

_traffic = partial(typer.Option, rich_help_panel="Traffic")
_server = partial(typer.Option, rich_help_panel="Server")
_answer = partial(typer.Option, rich_help_panel="Simulation, gate and pools")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """What arrives."""

    rate: Annotated[
        Text,
        _traffic(
            metavar="λ",
            help=r"Requests per second of all replicas together; several as 1,5,10 or 1:32:x2. "
            r"\[default: 1, or that of --trace, which is played faster or slower to any other]",
        ),
    ] = None
    prompt_tokens: Annotated[
        Text,
        _traffic("--prompt-tokens", "--prompt", metavar="P", help=r"Mean tokens of a prompt. \[default: 1k]"),
    ] = None
    output_tokens: Annotated[
        Text,
        _traffic("--output-tokens", metavar="N", help=r"Mean tokens of an output. \[default: 250]"),
    ] = None
    spread: Annotated[
        Text,
        _traffic(metavar="constant|geometric|lognormal", help=r"How lengths vary. \[default: constant]"),
    ] = None
    variation: Annotated[
        Text, _traffic(metavar="x", help="Standard deviation over mean of lognormal lengths.")
    ] = None
    prefix: Annotated[
        Text,
        _traffic(
            metavar="cached=1500,unit=16",
            help="Prompt tokens in the prefix cache, and tokens of its unit: a block, or a page of states.",
        ),
    ] = None
    traffic_class: Annotated[
        list[str] | None,
        _traffic(
            "--class",
            metavar="share=.3,prompt=2k,output=300,alpha=.6",
            help="A class of requests; repeat it. Also name, spread, variation, cached, unit; what it leaves "
            "out is that of the options.",
        ),
    ] = None
    trace: Annotated[
        Text,
        _traffic(
            metavar="FILE",
            help="CSV or JSONL of arrival_s,prompt_tokens,output_tokens[,class], in the place of lengths and "
            "shares.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What serves it."""

    replicas: Annotated[str, _server(metavar="N", help="Engines that share the requests.")] = "1"
    max_batch: Annotated[
        Text,
        _server(
            metavar="B",
            help=r"Requests that run at once at most, where memory holds them. \[default: 1024; 48 beside a "
            r"drafter of sglang]",
        ),
    ] = None
    chunk: Annotated[
        str, _server(metavar="TOKENS", help="Prompt tokens of a step at most (chunked prefill).")
    ] = "2048"
    slo: Annotated[
        Text,
        _server(
            metavar="ttft=500ms,tpot=30ms,itl=80ms,e2e=9s",
            help="What a request must meet, times with a unit: means, and for itl, the gap between "
            "deliveries, its p99.",
        ),
    ] = None
    zero_tier_cost: Annotated[
        Text,
        _server(
            metavar="x",
            help="What k = 0 of an engine that may draft costs beyond a plain step, in plain steps. "
            r"\[default: 0.19 for vllm 0.25 to 0.27, else 0]",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """What is asked beside the table."""

    simulate: Annotated[
        Text,
        _answer(
            metavar="N",
            help="Simulate N requests a run beside the closed form, for tails; of --trace the first N.",
        ),
    ] = None
    seed: Annotated[str, _answer(metavar="N", help="Of the simulation.")] = "0"
    log: Annotated[
        Text, _answer(metavar="FILE", help="Keep simulated runs in FILE, and take up those in it.")
    ] = None
    gate: Annotated[
        bool, _answer("--gate", help="Instead: batches and rates at which to change k, with hysteresis.")
    ] = False
    pools: Annotated[
        bool, _answer("--pools", help="Instead: replicas of one pool, and of a speculative and a plain one.")
    ] = False
