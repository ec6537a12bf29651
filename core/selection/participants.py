"""Choosing the participants: those that take part wherever they are installed, and those that the user names."""

from __future__ import annotations

from collections.abc import Sequence

from core.api.descriptors import ParticipantSpec
from core.api.verdict import Verdict
from core.plugins.drivers import Candidate
from core.plugins.entry import answers
from core.plugins.kinds import PARTICIPANT
from core.selection.foundation import device_reason
from core.selection.select import Selector

HONOURED = frozenset({"grammar", "thinking_token_budget"})
"""Fields of `SamplingParams` that core leaves to participants."""

BY_ITSELF = "it takes part wherever it is installed"


def choose_participants(selector: Selector, asks: Sequence[str], device: str, task: str) -> list[Candidate]:
    """Return the participants: automatic ones that can take part, by name, and then those of `asks` in their order.

    Args:
        device: The platform's device type.
        task: The engine's.

    Raises:
        PluginError: One that was named cannot be had, or two distributions have an automatic one of the same name.
    """

    def takes_part(candidate: Candidate) -> Verdict:
        spec = candidate.spec(ParticipantSpec)
        other = None if {task, "*"} & spec.tasks else f"takes part in {', '.join(sorted(spec.tasks))}, not in {task}"
        return Verdict.of(device_reason(device, spec.devices), other)

    usable = [one for one in selector.assess(PARTICIPANT, takes_part).usable if one.spec(ParticipantSpec).automatic]
    unasked = {one.entry.name for one in usable if not any(answers(ask, one.entry) for ask in asks)}
    chosen = []
    for name in (*sorted(unasked), *asks):
        chosen.append(selector.choose(PARTICIPANT, name, check=takes_part, subject=device))
        if name in unasked:
            selector.reports[-1].asked, selector.reports[-1].how = None, BY_ITSELF
    return chosen
