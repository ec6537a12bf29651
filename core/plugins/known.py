"""Plugins that are known by name though they are not installed: what messages tell a user to install.

The table is data (`known.toml`). It is read when a message needs it, and nothing is chosen by it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

STATES = ("released", "planned", "unplanned", "renamed", "instead")

_DISPLAY, _ACCELERATOR = "0x03", "0x12"
"""First byte of the PCI classes of devices that compute."""


class Known(NamedTuple):
    """One row of the table.

    Attributes:
        dist: The distribution; for rows of other states than the first two only a key.
        state: `released`, `planned` (the name is kept, there is nothing to install), `unplanned`, `renamed` (a name of
            earlier versions), or `instead` (a name that others have, or had).
        what: What it is, in a few words; of the last two, what to write instead.
        names: Kind without `core.` -> the names that plugins of it have.
        methods: Values of `quantization` in checkpoints that it reads.
        architectures: Architectures that it implements, or patterns of them.
        switches: Switches of core's that a hook plugin of it carries out (`core.selection.presets`).
        honours: Fields of `SamplingParams` that a participant of it carries out (`ParticipantSpec.honours`).
    """

    dist: str
    state: str
    what: str
    names: Mapping[str, tuple[str, ...]]
    methods: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    honours: tuple[str, ...] = ()


class Hardware(NamedTuple):
    """A device and the platform that runs on it; without `files` and `vendors` every machine has it."""

    what: str
    platform: str
    files: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()

    def seen(self, root: Path) -> bool:
        """Say whether the machine whose file system begins at `root` has it. No driver or library is loaded."""
        if not (self.files or self.vendors):
            return True
        driver = any((root / file.lstrip("/")).exists() for file in self.files)
        return driver or not _vendors(root).isdisjoint(self.vendors)


class UnreadFormat(NamedTuple):
    """A format of model files that no plugin reads, told by its files' names, and what to do about it."""

    what: str
    files: tuple[str, ...]
    instead: str

    def seen(self, names: Collection[str]) -> bool:
        """Say whether there is a file for each of its patterns."""
        return all(any(fnmatchcase(name, pattern) for name in names) for pattern in self.files)


class Table(NamedTuple):
    """Everything that is known."""

    rows: tuple[Known, ...]
    hardware: tuple[Hardware, ...]
    formats: tuple[UnreadFormat, ...]

    @classmethod
    def read(cls) -> Table:
        """Read the table; a few milliseconds."""
        import tomllib  # not at the top: a start that needs no message does not pay for these
        from importlib.resources import files

        data = tomllib.loads((files("core.plugins") / "known.toml").read_text(encoding="utf-8"))
        hardware = tuple(Hardware(**_tuples(row)) for row in data.pop("hardware"))
        formats = tuple(UnreadFormat(**_tuples(row)) for row in data.pop("format"))
        rows = tuple(_row(state, dist, row) for state, rows in data.items() for dist, row in rows.items())
        return cls(rows, hardware, formats)

    def named(self, group: str, name: str) -> list[Known]:
        """Return what brings the plugin `name` of a group, however its capitals, `-` and `_` are written."""
        kind = group.removeprefix("core.")
        return [row for row in self.rows if normalise(name) in map(normalise, row.names.get(kind, ()))]

    def anywhere(self, name: str) -> list[Known]:
        """Return what brings a plugin `name` of any kind."""
        return [row for row in self.rows if any(row in self.named(kind, name) for kind in row.names)]

    def format_of(self, names: Collection[str]) -> str:
        """Return what files of these names are and what to give instead; an empty text for no format of the table."""
        found = next((one for one in self.formats if one.seen(names)), None)
        return "" if found is None else f"This is {found.what}, which no plugin reads. {found.instead}"

    def names(self, group: str) -> list[str]:
        """Return every name of a group, those first that can be installed, without those of earlier versions."""
        kind = group.removeprefix("core.")
        there = (row for row in self.rows if row.state not in ("renamed", "instead"))
        return [name for row in there for name in row.names.get(kind, ())]

    def providing(self, group: str) -> list[Known]:
        """Return the released rows that bring plugins of a group."""
        kind = group.removeprefix("core.")
        return [row for row in self.rows if row.state == "released" and kind in row.names]

    def reading(self, method: str) -> list[Known]:
        """Return what reads checkpoints whose weights are stored by `method`."""
        return [row for row in self.rows if normalise(method) in map(normalise, row.methods)]

    def switching(self, switch: str) -> list[Known]:
        """Return what carries out a switch of core's."""
        return [row for row in self.rows if switch in row.switches]

    def honouring(self, field: str) -> list[Known]:
        """Return what carries out a sampling parameter that core leaves to participants."""
        return [row for row in self.rows if field in row.honours]

    def implementing(self, architecture: str) -> list[Known]:
        """Return what implements an architecture."""
        return [row for row in self.rows if any(fnmatchcase(architecture, known) for known in row.architectures)]


def advice(rows: Sequence[Known], subject: str, installed: Collection[str] = ()) -> str:
    """Return how to get `subject`, which `rows` bring; an empty text if they are none.

    Args:
        installed: Names of the distributions that are there already.
    """
    by_state = {state: [row for row in rows if row.state == state] for state in STATES}
    said = [f"'{subject}' is a name of earlier versions: {row.what}" for row in by_state["renamed"]]
    said += [f"There is no '{subject}': {row.what}" for row in by_state["instead"]]
    said += [_released(row, subject, installed) for row in by_state["released"]]
    if planned := by_state["planned"]:
        names = " or ".join(f"{row.dist} ({row.what})" for row in planned)
        said.append(f"'{subject}' is planned as {names}: not released yet.")
    said += [f"No plugin for {row.what} is released or planned." for row in by_state["unplanned"]]
    return " ".join(said)


def _released(row: Known, subject: str, installed: Collection[str]) -> str:
    if row.dist in installed:
        return f"'{subject}' comes with a newer {row.dist}: `pip install --upgrade {row.dist}`."
    return f"'{subject}' comes with {row.dist} ({row.what}): `pip install {row.dist}`."


def platform_advice(installed: Collection[str] = (), root: Path = Path("/")) -> str:
    """Return which platforms this machine's devices ask for, without those of the distributions `installed`."""
    table = Table.read()
    said = []
    for device in (one for one in table.hardware if one.seen(root)):
        rows = [row for row in table.named("core.platforms", device.platform) if row.dist not in installed]
        said += [f"This machine has {device.what}: {advice(rows, device.platform)}"] if rows else []
    return " ".join(said)


def _row(state: str, dist: str, data: Mapping[str, Any]) -> Known:
    facts = _tuples(data)
    known = {key: facts.pop(key) for key in ("what", "methods", "architectures", "switches", "honours") if key in facts}
    return Known(dist, state, names=facts, **known)


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}


def normalise(name: str) -> str:
    """Return a name of a distribution or plugin in its comparable form (PEP 503).

    `packaging` has the same, and takes 13 ms to be imported, which every command would pay for.
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def _vendors(root: Path) -> set[str]:
    """Return the vendors of the displays and accelerators on the PCI bus."""
    found = set()
    for device in root.glob("sys/bus/pci/devices/*"):
        try:
            kind, vendor = ((device / file).read_text().strip().lower() for file in ("class", "vendor"))
        except (OSError, UnicodeDecodeError):
            continue
        if kind.startswith((_DISPLAY, _ACCELERATOR)):
            found.add(vendor)
    return found
