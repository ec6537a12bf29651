"""What the command line shows: tables, the start-up report, progress."""

from core.cli.ui.progress import WeightProgress
from core.cli.ui.startup import (
    choices_rows,
    choices_table,
    print_choices,
    print_facts,
    print_ready,
    print_timeline,
    timeline,
)
from core.cli.ui.tables import table

__all__ = [
    "WeightProgress",
    "choices_rows",
    "choices_table",
    "print_choices",
    "print_facts",
    "print_ready",
    "print_timeline",
    "table",
    "timeline",
]
