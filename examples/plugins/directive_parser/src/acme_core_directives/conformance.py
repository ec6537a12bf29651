"""Messages and what they mean, for core's conformance kit; imported by nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from core.api import Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core_testing.conformance import ParserSample


def samples() -> Iterator[ParserSample]:
    """Yield one message of every shape."""
    call = (ToolStart(0, "f"), ToolArguments(0, '{"a": 1, "b": "x y"}'), ToolEnd(0))
    yield ParserSample("one call", '@@call f\na: 1\nb: "x y"\n@@end', events=call)
    around = 'Yes.\n@@call f\na: 1\nb: "x y"\n@@end\nDone.'
    yield ParserSample("text around a call", around, (Text("Yes."), *call, Text("Done.")))
    empty = (
        ToolStart(0, "f"),
        ToolArguments(0, "{}"),
        ToolEnd(0),
        ToolStart(1, "g"),
        ToolArguments(1, "{}"),
        ToolEnd(1),
    )
    yield ParserSample("two calls without arguments", "@@call f\n@@call g\n@@end", events=empty)
    yield ParserSample("reasoning", "@@think\nHm.\n@@end\nYes.", events=(Reasoning("Hm."), Text("Yes.")))
    yield ParserSample("an open block", "Hm.\n@@end\nYes.", events=(Reasoning("Hm."), Text("Yes.")), in_reasoning=True)
