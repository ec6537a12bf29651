"""A tiny model of every family end to end: the tokens that the host processor gives."""

from __future__ import annotations

from record import Record
from rows import plugins, rows_of
from side_by_side import side_by_side


def main() -> None:
    """Run the phase."""
    record = Record()
    items = [f"{plugin} {rows[0].name}" for plugin in plugins() if (rows := rows_of(plugin))]
    side_by_side(record, "families", items[:2] if record.small else items, each=2, seconds=100)


if __name__ == "__main__":
    main()
