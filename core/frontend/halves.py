"""Front halves of participants: what travels with a request, and what comes back with its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from core.api.descriptors import ParticipantSpec
from core.api.errors import CoreError, PluginError, RequestError
from core.api.participants import FrontParticipant, FrontSetup
from core.api.requests import Caller
from core.api.sampling_params import SamplingParams
from core.api.wire import restored
from core.plugins.active import ActivePlugins
from core.plugins.drivers import describe
from core.plugins.faults import Faults
from core.plugins.plan import PlannedPlugin

GROUP = "core.participants"


class FrontHalves:
    """The front halves of a plan's participants.

    Attributes:
        args: Names of `extra_args` that a participant reads.
        honoured: Fields of `SamplingParams` that a participant carries out, of those that core leaves to them.
    """

    def __init__(self, active: ActivePlugins | None) -> None:
        self._halves: list[tuple[PlannedPlugin, FrontParticipant, Faults]] = []
        specs = [] if active is None else [(one, cast(ParticipantSpec, spec)) for one, spec in active.specs(GROUP)]
        self.args = frozenset(name for _, spec in specs for name in spec.args)
        self.honoured = frozenset(name for _, spec in specs for name in spec.honours)
        for planned, spec in specs:
            if active is None or spec.front_impl is None:
                continue
            made = active.guard(
                planned,
                "the constructor of its front half",
                active.load(planned, spec.front_impl),
                FrontSetup(planned.name, planned.options, active.chosen),
            )
            made.name = planned.name
            if spec.parts is not None:
                made.parts = active.load(planned, spec.parts)
            self._halves.append((planned, made, Faults(planned, "the client is not told of it")))

    def request(self, params: SamplingParams, prompt: Any, caller: Caller) -> dict[str, Any]:
        """Return the parts that travel with a new request, by participant.

        Raises:
            RequestError: A participant refuses the request.
            PluginError: CORE-P108, one raised anything else.
        """
        parts: dict[str, Any] = {}
        if not self._halves:
            return parts
        ids = np.asarray(prompt, dtype=np.int32)
        for planned, half, _ in self._halves:
            part = _asked(planned, half, params, ids, caller)
            if part is not None:
                parts[planned.name] = part
        return parts

    def finished(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return what clients are told of the parts that came with the end of a sequence, by participant."""
        told: dict[str, Any] = {}
        for planned, half, faults in self._halves if parts else ():
            if planned.name not in parts:
                continue
            try:
                answer = half.finished(restored(parts[planned.name], half.parts.finished, planned.name))
            except Exception as error:
                faults.raised("finished()", error)
                continue
            if answer is not None:
                told[planned.name] = answer
        return told


def _asked(
    planned: PlannedPlugin, half: FrontParticipant, params: SamplingParams, prompt: np.ndarray, caller: Caller
) -> Any:
    try:
        return half.request(params, prompt, caller)
    except (CoreError, RequestError):
        raise
    except ValueError as error:
        raise RequestError(str(error), param=getattr(error, "param", None)) from error
    except Exception as error:
        raise PluginError("CORE-P108", f"participant {planned.owner}: request() raised {describe(error)}.") from error
