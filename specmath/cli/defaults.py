"""Defaults of a project: `specmath.toml` in the current folder.

    hardware = "h200-sxm"        # for every command that has the option
    alpha = 0.72

    [speedup]                    # for one command
    k = "1:8"

Keys are option names without the dashes in front. A list repeats an option: `draft = ["1B", "eagle3,k=5"]`.
What stands on the command line wins, and it takes the options that it excludes with it: `--rates` on the
command line drops an `alpha` of the file.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from specmath.cli import DEFAULTS_FILE
from specmath.cli.options import LAWS, REFINEMENTS, DeviceOptions, PairOptions, RatioOptions
from specmath.errors import AccessError, DataError

FILE = Path(DEFAULTS_FILE)
MAX_BYTES = 65_536

_RATIOS = tuple(field.name for field in fields(RatioOptions))
_HARDWARE = tuple(field.name for options in (DeviceOptions, PairOptions) for field in fields(options))
_DROPS = (
    (LAWS, (*LAWS, *REFINEMENTS, "from_source", "since", "model", "source_engine")),
    (("from_source",), (*LAWS, *REFINEMENTS, "k", "batch")),  # which the source tells
    (_RATIOS, (*_HARDWARE, "case", "measured")),
    (_HARDWARE, _RATIOS),
    (("draft",), ("match_rate", "method", "exit_layer")),
    (("match_rate",), ("draft", "draft_tp", "method", "exit_layer")),
    (("exit_layer",), ("draft", "draft_tp", "match_rate")),
    (("gate",), ("rate", "slo", "simulate", "log")),
    (("pools",), ("simulate", "log")),
    (("trace",), ("prompt_tokens", "output_tokens", "spread", "variation", "prefix")),
    (("by", "worst"), ("rows",)),
    (("rows",), ("by", "worst")),
)
"""What is typed of the first drops the second from the defaults."""
_REFUSED = {
    "crossover": _RATIOS,
    "schedule": _RATIOS,
    "load": _RATIOS,
    "alpha": ("k",),
}
"""Options of a command that it does not take from what the file says for all."""
_NEVER = ("debug", "version", "help")
"""Options that are no defaults."""


@dataclass(frozen=True, slots=True)
class Command:
    """What a command takes: parameter names by option, which of them are switches, which may be repeated."""

    names: Mapping[str, str]
    switches: frozenset[str]
    repeated: frozenset[str]

    @classmethod
    def of(cls, parameters: Sequence[Any]) -> Command:
        """From the parameters of the command line."""
        known = [parameter for parameter in parameters if parameter.name not in _NEVER]
        names = {option: parameter.name for parameter in known for option in parameter.opts}
        switches = (parameter.name for parameter in known if getattr(parameter, "is_flag", False))
        repeated = (parameter.name for parameter in known if getattr(parameter, "multiple", False))
        return cls(names, frozenset(switches), frozenset(repeated))

    def parameter(self, key: str) -> str | None:
        """The parameter that a key of the file means."""
        return self.names.get(f"--{key.replace('_', '-')}")


def project_defaults(command: str, commands: Mapping[str, Command], typed: Sequence[str]) -> dict[str, Any]:
    """The defaults that `specmath.toml` sets for one command, after the command line has had its say.

    Args:
        command: The command that runs.
        commands: What each command takes, to know the keys of the file by.
        typed: The words of the command line.

    Returns:
        Values by parameter name; empty where there is no such file.

    Raises:
        AccessError: if the file cannot be read.
        DataError: for what is no TOML, a key that no command has, or a value that is none of an option.
    """
    if not (FILE.exists() or FILE.is_symlink()):
        return {}
    shared, tables = _read(commands)
    own = commands[command]
    # Some have the ratio options only to refuse them with a reason; the k of a source is the source's.
    refused = _REFUSED.get(command, ())
    values = {own.parameter(key): value for key, value in shared.items() if own.parameter(key) not in refused}
    values |= {own.parameter(key): value for key, value in tables.get(command, {}).items()}
    given = {own.names.get(word.split("=")[0]) for word in typed}
    dropped = {name for rivals, losers in _DROPS if given & set(rivals) for name in losers} | given
    if sum(own.names.get(word.split("=")[0]) == "draft" for word in typed) > 1:
        dropped.add("measured")  # which corrects one set-up
    kept = {name: value for name, value in values.items() if name is not None and name not in dropped}
    return {
        name: [value] if name in own.repeated and not isinstance(value, list) else value
        for name, value in kept.items()
    }


def _read(commands: Mapping[str, Command]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The file's values for all commands and for each, checked."""
    document = _document()
    tables = {name: table for name, table in document.items() if isinstance(table, dict)}
    for name in tables:
        if name not in commands:
            raise _unknown("command", name, commands)
    shared = {key: value for key, value in document.items() if key not in tables}
    _check(shared, list(commands.values()))
    for name, table in tables.items():
        _check(table, [commands[name]])
    return _as_typed(shared), {name: _as_typed(table) for name, table in tables.items()}


def _document() -> dict[str, Any]:
    import tomllib

    try:
        if not stat.S_ISREG(FILE.stat().st_mode):
            raise AccessError(str(FILE), "is no regular file")
        if FILE.stat().st_size > MAX_BYTES:
            raise DataError(str(FILE), f"is larger than {MAX_BYTES // 1024} kB")
        return tomllib.loads(FILE.read_text(encoding="utf-8"))
    except OSError as error:
        raise AccessError(str(FILE), (error.strerror or str(error)).lower()) from error
    except DataError:
        raise
    except RecursionError as error:
        raise DataError(str(FILE), "is nested too deeply") from error
    except ValueError as error:  # TOML, UTF-8 and numbers too long to be read
        raise DataError(str(FILE), f"is not TOML: {str(error).splitlines()[0]}") from error


def _check(table: Mapping[str, Any], commands: Sequence[Command]) -> None:
    for key, value in table.items():
        names = {command.parameter(key) for command in commands} - {None}
        if not names:
            known = [option.removeprefix("--") for command in commands for option in command.names]
            raise _unknown("option", key, known)
        switch = any(name in command.switches for command in commands for name in names)
        if switch is not isinstance(value, bool):
            wanted = "true or false" if switch else "a text or a number"
            raise DataError(str(FILE), f"{key}: must be {wanted}, as typed after --{key}")
        repeated = any(name in command.repeated for command in commands for name in names)
        listed = value if isinstance(value, list) and value and repeated else [value]
        if not all(isinstance(one, bool | int | float | str) for one in listed):
            wanted = "a text or a number" + (", or a list of them" if repeated else "")
            raise DataError(str(FILE), f"{key}: must be {wanted}, as typed after --{key}")


def _as_typed(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _typed(value) for key, value in table.items()}


def _typed(value: Any) -> Any:
    if isinstance(value, list):
        return [str(one) for one in value]
    return value if isinstance(value, bool) else str(value)


def _unknown(kind: str, name: str, known: Collection[str]) -> DataError:
    from difflib import get_close_matches

    nearest = get_close_matches(name, list(dict.fromkeys(known)), n=3)
    hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
    return DataError(str(FILE), f"unknown {kind} {name!r}{hint}")
