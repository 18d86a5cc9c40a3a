"""Defaults of a project: `specmath.toml` in the current folder.

    hardware = "h200-sxm"        # for every command that has the option
    alpha = 0.72

    [speedup]                    # for one command
    k = "1:8"

Keys are option names without the dashes in front. What stands on the command line wins, and it takes the
options that it excludes with it: `--rates` on the command line drops an `alpha` of the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from specmath.cli.options import LAWS, DeviceOptions, PairOptions, RatioOptions
from specmath.errors import AccessError, DataError

FILE = Path("specmath.toml")

_RATIOS = ["c", *(field.name for field in fields(RatioOptions))]  # `--c` is short for --draft-cost
_HARDWARE = [field.name for options in (DeviceOptions, PairOptions) for field in fields(options)]
_DROPS = ((LAWS, LAWS), (_RATIOS, _HARDWARE), (_HARDWARE, _RATIOS))
"""What is typed of the first drops the second from the defaults."""


def project_defaults(
    command: str, options: Mapping[str, Collection[str]], typed: Sequence[str]
) -> dict[str, Any]:
    """The defaults that `specmath.toml` sets for one command, after the command line has had its say.

    Args:
        command: The command that runs.
        options: Parameter names by command, to know the keys of the file by.
        typed: The words of the command line.

    Returns:
        Values by parameter name; empty where there is no such file.

    Raises:
        AccessError: if the file cannot be read.
        DataError: for what is no TOML, a key that no command has, or a value that is none of an option.
    """
    if not FILE.exists():
        return {}
    shared, tables = _read(options)
    values = {key: value for key, value in shared.items() if key in options[command]}
    values |= tables.get(command, {})
    given = {
        word.split("=")[0].removeprefix("--").replace("-", "_") for word in typed if word.startswith("--")
    }
    dropped = {name for rivals, losers in _DROPS if given & set(rivals) for name in losers} | given
    return {name: value for name, value in values.items() if name not in dropped}


def _read(options: Mapping[str, Collection[str]]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The file's values for all commands and for each, checked."""
    import tomllib

    try:
        document = tomllib.loads(FILE.read_text(encoding="utf-8"))
    except OSError as error:
        raise AccessError(str(FILE), (error.strerror or str(error)).lower()) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(str(FILE), f"is not TOML: {str(error).splitlines()[0]}") from error
    tables = {name: table for name, table in document.items() if isinstance(table, dict)}
    for name in tables:
        _require_known("command", name, options)
    shared = {key: value for key, value in document.items() if key not in tables}
    everywhere = {name for names in options.values() for name in names}
    return _values(shared, everywhere), {
        name: _values(table, options[name]) for name, table in tables.items()
    }


def _values(table: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        _require_known("option", name, known)
        if not isinstance(value, bool | int | float | str):
            raise DataError(
                str(FILE), f"{key}: must be a text, a number or true/false, as typed after --{key}"
            )
        values[name] = value if isinstance(value, bool) else str(value)
    return values


def _require_known(kind: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        from difflib import get_close_matches

        nearest = [word.replace("_", "-") for word in get_close_matches(name, list(known), n=3)]
        hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
        raise DataError(str(FILE), f"unknown {kind} {name.replace('_', '-')!r}{hint}")
