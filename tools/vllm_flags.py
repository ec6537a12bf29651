"""Write docs/vllm-flags.md: what every flag of vLLM's server means here, from the table of `core-plugin-vllm-flags`.

With `--check` nothing is written: exit status 1 means that the page is stale.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

from core_plugin_vllm_flags.names import DEFAULTS, NAMES, SAME, SPELLINGS
from core_plugin_vllm_flags.rows import ANY, OFF, ON, Foreign
from core_plugin_vllm_flags.table import SECTIONS

from core.config.fields import fields_by_path
from core.config.load import AUTO, WITH_UNITS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "vllm-flags.md"

BOTH = MappingProxyType({"device": "platform"})
"""vLLM's names that are further names of core's own."""

HEAD = """# vLLM's flags

Written by `tools/vllm_flags.py` from the table of `core-plugin-vllm-flags`; do not edit.

`core serve` takes a command line, or the keys of a configuration file, that was written for vLLM. Every flag does what
it says, or is accepted because what it asks for is so anyway, or is refused with a sentence (CORE-C105). None is
ignored: a value that would have no effect is refused. A flag that is in no list is unknown (CORE-C104), and the nearest
known one is named.
"""


def render() -> str:
    """Return the page."""
    lines = [*HEAD.splitlines(), "", "## The same here", ""]
    lines += [", ".join(f"`{flag}`" for flag in SAME) + ".", ""]
    lines += [f"- `{flag}`: {text}." for flag, text in DEFAULTS.items()]
    lines += ["", "## Other names for an option", ""]
    lines += ["| vLLM | here |", "|---|---|"]
    lines += [f"| `--{theirs}` | `--{ours}` |" for theirs, ours in (NAMES | BOTH).items()]
    lines += ["", "## Values", "", *_values()]
    for title, rows in SECTIONS.items():
        lines += ["", f"## {title}", "", "| flag | accepted | otherwise |", "|---|---|---|", *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _values() -> Iterator[str]:
    for path, values in (*SPELLINGS.items(), *((path, {"auto": ours}) for path, ours in AUTO.items())):
        flag = fields_by_path()[path].flag
        pairs = [f"`{theirs}` is `{ours}`" if ours else f"`{theirs}` is the default" for theirs, ours in values.items()]
        yield f"- `{flag}`: {', '.join(pairs)}."
    flags = ", ".join(f"`{fields_by_path()[path].flag}`" for path in sorted(WITH_UNITS))
    yield f"- {flags}: numbers may have a unit; small letters count in thousands (`8k`), capitals in 1024s (`8K`)."


def _row(row: Foreign) -> str:
    names = ", ".join(f"`{name}`" for name in row.names)
    accepted = [*_fine(row), *_mapped(row)]
    beside = f" beside {' or '.join(f'`{flag}`' for flag in row.needs)}" if row.needs else ""
    accepted += [f"the value of `{row.same}`"] if row.same else []
    refused = ANY not in row.fine and ANY not in row.words and not (row.takes == 0 and _settled(row) == {ON, OFF})
    text = row.why if refused or accepted == ["any value"] or row.words else ""
    return f"| {names} | {'; '.join(accepted)}{beside} | {text} |"


def _settled(row: Foreign) -> set[str]:
    return set() if row.needs else {*row.fine, *row.words}


def _fine(row: Foreign) -> Iterator[str]:
    for value in row.fine:
        if value == ANY:
            yield "any value"
        elif row.takes:
            yield f"`{value}`" if value else "empty"
        else:
            yield f"`{_form(row, value)}`"


def _mapped(row: Foreign) -> Iterator[str]:
    for value, words in row.words.items():
        typed = _form(row, value) if not row.takes else "any value" if value == ANY else f"`{value}`"
        shown = f"`{typed}`" if not row.takes else typed
        yield f"{shown}: `{' '.join(words).replace('{}', 'X')}`"


def _form(row: Foreign, value: str) -> str:
    return row.names[0] if value == ON else "--no-" + row.names[0].removeprefix("--")


def main() -> int:
    """Write the page, or check it; return the exit status."""
    parser = argparse.ArgumentParser(description="Write docs/vllm-flags.md.")
    parser.add_argument("--check", action="store_true", help="Write nothing; status 1 if the page is stale.")
    if not parser.parse_args().check:
        PAGE.write_text(render(), encoding="utf-8")
        return 0
    fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == render()
    print("docs/vllm-flags.md is " + ("up to date" if fresh else "stale: run tools/vllm_flags.py"))
    return 0 if fresh else 1


if __name__ == "__main__":
    raise SystemExit(main())
