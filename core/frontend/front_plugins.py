"""Plugins of the front end: they check and change requests, and receive figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from core.api.descriptors import LogitsSpec, StructuredOutputSpec, TaskSpec
from core.api.errors import PluginError, RequestError
from core.api.fronts import TaskFront, TaskFrontSetup
from core.api.kinds import Chosen
from core.api.requests import Caller, Reject, RequestDraft, RequestPatch
from core.api.sampling import SamplingField
from core.api.sampling_params import SamplingParams
from core.api.sinks import StatSink
from core.frontend.halves import FrontHalves
from core.frontend.sinks import StatSinks
from core.frontend.templating import GROUP as TEMPLATES
from core.frontend.templating import Templating
from core.plugins.active import ActivePlugins, enter
from core.plugins.faults import Faults
from core.plugins.kinds import KINDS, TASK
from core.plugins.known import Table
from core.plugins.plan import PlannedPlugin, PluginPlan

ARGUMENTS, GRAMMARS, SINKS = "core.logits", "core.structured_output", "core.stat_sinks"
PROCESSORS, PARTICIPANTS = "core.io_processors", "core.participants"
DRIVEN = frozenset({PROCESSORS})
"""Kinds of core's whose plugins front halves of tasks may call."""
HERE = frozenset({ARGUMENTS, GRAMMARS, SINKS, PROCESSORS, PARTICIPANTS, TASK.group, TEMPLATES})
"""Kinds of driver that the front end needs."""


class FrontPlugins:
    """The plan's plugins that take part in the front end; nothing is loaded for a plan that has none.

    Attributes:
        sinks: Receivers of figures.
        fields: Sampling parameters that logits processors declare, by name.
        grammars: Kinds of grammar that a backend compiles; none where no participant holds rows to grammars.
        halves: Front halves of participants.
        templating: The template engine; None if the plan has none.
    """

    def __init__(self, plan: PluginPlan) -> None:
        # Front halves may ask for plugins of kinds that plugins define, which are of no use to anybody else here.
        mine = [one for one in plan.drivers if one.group in HERE]
        mine += [one for one in plan.drivers if mine and one.group not in KINDS]
        active = enter(plan.model_copy(update={"drivers": tuple(mine)})) if mine or plan.hooks else None
        self._active = active
        self.sinks = StatSinks(_sinks(active) if active else ())
        self._hooks = active.hooks if active and active.hooks.has("core_request") else None
        self.halves = FrontHalves(active)
        self.templating = Templating(active) if active and active.has(TEMPLATES) else None
        logits = [cast(LogitsSpec, spec) for _, spec in active.specs(ARGUMENTS)] if active else []
        self.fields: Mapping[str, SamplingField] = {one.name: one for spec in logits for one in spec.fields}
        self._arguments = frozenset(name for spec in logits for name in spec.args) | self.halves.args
        self._checks = _checks(active) if active else []
        held = active is not None and "grammar" in self.halves.honoured
        backends = [cast(StructuredOutputSpec, spec) for _, spec in active.specs(GRAMMARS)] if active and held else []
        self.grammars = frozenset[str]().union(*(spec.grammars for spec in backends))

    def front(self, setup: TaskFrontSetup) -> TaskFront | None:
        """Return the front half of the plan's task plugin; None if the plan has none.

        Raises:
            PluginError: It, or a plugin that it drives, cannot be made; CORE-P132, it drives a kind that it cannot.
        """
        active = self._active
        if active is None or not active.has(TASK.group):
            return None
        planned, spec = active.planned(TASK.group), cast(TaskSpec, active.spec(TASK.group))
        if unknown := sorted(set(spec.drives) - DRIVEN):
            text = f"task {planned.owner} cannot drive {unknown[0]!r}: {', '.join(sorted(DRIVEN))} can be driven."
            raise PluginError("CORE-P132", text)
        own = replace(setup, options=planned.options, driven=partial(_driven, active, planned, spec.drives))
        made = active.guard(planned, "the constructor of its front half", active.load(planned, spec.front_impl), own)
        if not isinstance(made, TaskFront):
            text = f"task {planned.owner}: {spec.front_impl} gave a {type(made).__name__}, not a TaskFront."
            raise PluginError("CORE-P160", text)
        return made

    def check(self, params: SamplingParams) -> None:
        """Refuse what no plugin carries out or reads, and what one cannot use. Raises `RequestError`."""
        if params.extra_args:
            self._check_arguments(params.extra_args)
        if params.thinking_token_budget is not None:
            self._require_honoured("thinking_token_budget", "thinking_token_budget")
        grammar = params.grammar
        if grammar is None:
            return
        self._require_honoured("grammar", grammar.param)
        if grammar.kind not in self.grammars:
            known = f"supported: {', '.join(sorted(self.grammars))}" if self.grammars else "start with a backend"
            text = f"grammars of kind '{grammar.kind:.40}' are not supported here; {known}"
            raise RequestError(text, param=grammar.param, code="unsupported_parameter")

    def request(
        self, ids: Sequence[int], params: SamplingParams, priority: int, caller: Caller
    ) -> tuple[SamplingParams, int]:
        """Return a request's parameters and priority after every plugin's changes.

        Raises:
            RequestError: A plugin refuses the request.
            PluginError: A plugin failed, or changed the request into one that cannot be.
        """
        if self._hooks is None:
            return params, priority
        answer = self._hooks.request(RequestDraft(ids, params, priority, caller), _patched)
        if isinstance(answer, Reject):
            raise RequestError(answer.message, code=answer.code, status=answer.status)
        return cast(SamplingParams, answer.params), answer.priority

    def _require_honoured(self, field: str, param: str) -> None:
        """Refuse a field that core leaves to participants and that none here carries out. Raises `RequestError`."""
        if field not in self.halves.honoured:
            known = " or ".join(f"{row.dist} (`pip install {row.dist}`)" for row in Table.read().honouring(field))
            text = f"{param}: no participant here carries out '{field}'; {known} does, unless it is disabled"
            raise RequestError(text, param=param, code="unsupported_parameter")

    def _check_arguments(self, given: Mapping[str, Any]) -> None:
        for name in self.fields.keys() & given.keys():
            self.fields[name].check(given[name])
        known_here = self._arguments | self.fields.keys()
        unknown = sorted(given.keys() - known_here)
        if unknown:
            known = f"known: {', '.join(sorted(known_here))}" if known_here else "there is none"
            text = f"extra_args: no plugin here reads '{unknown[0]:.40}'; {known}"
            raise RequestError(text, param="extra_args", code="unsupported_parameter")
        for check in self._checks:
            try:
                check(given)
            except RequestError:
                raise
            except ValueError as error:
                raise RequestError(f"extra_args: {error}", param="extra_args") from error


def _driven(
    active: ActivePlugins, asker: PlannedPlugin, drives: Sequence[str], group: str, context: Any
) -> Sequence[Chosen]:
    """Return the plugins of a kind that a task drives, each made with a context. Raises as `AskDriven`."""
    if group not in drives:
        raise PluginError("CORE-P132", f"the descriptor of task {asker.owner} does not say that it drives {group!r}.")
    return active.kept(group, lambda one: active.make(one, replace(context, options=dict(one.options))))


def _patched(draft: RequestDraft, patch: RequestPatch) -> RequestDraft:
    params = cast(SamplingParams, draft.params)
    if patch.params:
        params = params.replace(**patch.params)
    return replace(draft, params=params, priority=draft.priority if patch.priority is None else patch.priority)


def _sinks(active: ActivePlugins) -> list[tuple[StatSink, Faults]]:
    return [
        (active.make(planned, planned.options), Faults(planned, "it misses what it should have been told"))
        for planned, _, _ in active.impls(SINKS)
    ]


def _checks(active: ActivePlugins) -> list[Callable[[Mapping[str, Any]], None]]:
    pairs = [(planned, cast(LogitsSpec, spec)) for planned, spec in active.specs(ARGUMENTS)]
    return [active.load(planned, spec.check) for planned, spec in pairs if spec.check is not None]
