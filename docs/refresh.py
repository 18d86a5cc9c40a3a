"""Rewrite what the README and the docs show of the program: command outputs and the list of public names.

    python docs/refresh.py          rewrite what is stale
    python docs/refresh.py --check  print what is stale and exit 1

A fenced `console` block whose lines begin with `$ specmath` is such an output: what stands below a command
up to the next command or the end of the block is replaced by what the command prints now. The list of public
names in docs/api.md is made from the first lines of their docstrings.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"^```console\n(\$ specmath.*?)^```$", re.MULTILINE | re.DOTALL)

_NAMES = re.compile(r"(<!-- names: .*?-->)\n.*?(<!-- end of names -->)", re.DOTALL)


def refreshed(page: str) -> str:
    """The page with every command output as it is now."""
    page = _BLOCK.sub(lambda block: f"```console\n{_rerun(block[1])}```", page)
    return _NAMES.sub(lambda block: f"{block[1]}\n{_names()}\n{block[2]}", page)


def _names() -> str:
    """One line a public name, grouped by the module it lives in."""
    import specmath

    lines = []
    for module, names in specmath._HOMES.items():
        lines.append(f"\n**`specmath.{module}`**\n")
        for name in names:
            docstring = (getattr(specmath, name).__doc__ or "").strip()
            lines.append(f"- `{name}`: {docstring.splitlines()[0]}")
    return "\n".join(lines) + "\n"


def _rerun(block: str) -> str:
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "\n".join(f"{command}\n{_output(command[2:])}" for command in commands)


def _output(command: str) -> str:
    """What the command prints in a pipe; the script's own interpreter runs it."""
    program, *arguments = shlex.split(command)
    if program != "specmath":
        raise SystemExit(f"refresh runs specmath only, not {program!r}")
    code = "from specmath.cli import main; main()"
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    environment.pop("SPECMATH_HARDWARE", None)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT, env=environment
    )
    return "".join(f"{line.rstrip()}\n" for line in (done.stdout + done.stderr).splitlines())


def main() -> int:
    """Refresh or check all pages; returns the exit status."""
    stale = []
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        if (new := refreshed(page)) != page:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(new, encoding="utf-8")
    sys.stdout.write("".join(f"{name}\n" for name in stale))
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
