"""Resolution: from what the user asked to a complete, frozen engine configuration. Torch-free.

The order is fixed: platform, model files, loader, architecture; then what follows from them. Plugins may propose
configuration patches once; what they change is derived again, and the result is validated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.api.descriptors import (
    KVConnectorSpec,
    PlatformSpec,
    QuantSpec,
    RouteSpec,
)
from core.api.errors import ConfigError, PluginError
from core.api.patches import Problem
from core.api.verdict import Verdict
from core.api.weights import CheckpointReader
from core.config.resolved import EngineConfig, Options
from core.options.model import FITTING
from core.plugins.catalog import Catalogue
from core.plugins.drivers import Candidate, guarded, load_descriptors, load_impl, typed
from core.plugins.entry import Entry, answers
from core.plugins.hooks import Hooks
from core.plugins.kinds import (
    DRAFTER,
    EXECUTOR,
    HOOKS,
    HOOKS_GROUP,
    IO_PROCESSOR,
    KV_CONNECTOR,
    LOGITS,
    ROUTE,
    SCHEDULER,
    STAT_SINK,
    WEIGHT_STORE,
    WEIGHT_TRANSFER,
    kind_of,
)
from core.plugins.lock import differences, read_lock
from core.plugins.options import checked_options, given_options, settled_options, unused_options
from core.plugins.plan import PlannedPlugin, PluginPlan
from core.selection.attention import block_size_of, choose_attention
from core.selection.chat_templates import choose_template_engine
from core.selection.checkpoints import find_files, find_model, find_reader, inspect
from core.selection.context import context_of, short_by_default
from core.selection.defined_choice import choose_of_defined, require_one_definition
from core.selection.demanded import choose_tool_client
from core.selection.foundation import Derived, Foundation, KernelPlace, device_reason, drivers_of
from core.selection.grammars import choose_backends
from core.selection.guards import failed_guard
from core.selection.io_processors import choose_io_processor
from core.selection.kernels import plan_kernels
from core.selection.kv_dtype import demanded_kv_dtype
from core.selection.no_tokenizer import require_tokenizer
from core.selection.overrides import described, doubts, overridden
from core.selection.parsers import FormatFacts, choose_parsers
from core.selection.participants import choose_participants
from core.selection.patching import AppliedPatch, apply_patches
from core.selection.platforms import choose_platform
from core.selection.presets import preset_of, require_presets, switched
from core.selection.quantization import choose_quantization, stored_forms
from core.selection.report import SelectionReport
from core.selection.sampling import check_fields
from core.selection.scope import open_scope
from core.selection.select import NONE, Selector
from core.selection.stores import access_of
from core.selection.tasks import ChosenTask, choose_task, keeps_blocks
from core.selection.token_classes import with_token_ids
from core.selection.views import facts_view, options_view
from core.selection.waivers import settle

Prepare = Callable[[Mapping[str, str]], None]


@dataclass(slots=True)
class Resolution:
    """Result of a resolution: the configuration and the reasons for it.

    Attributes:
        config: What the engine starts from.
        reports: One report per selection, in the order they were made.
        reader: Reads the checkpoint (tokenizer, tensors).
        patches: What plugins changed.
        warnings: What the user should know.
    """

    config: EngineConfig
    reports: list[SelectionReport]
    reader: CheckpointReader
    patches: list[AppliedPatch] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


def resolve(
    options: Options,
    *,
    catalogue: Catalogue | None = None,
    progress: Callable[[int, int], None] | None = None,
    shortens: bool = False,
    prepare: Prepare | None = None,
) -> Resolution:
    """Choose every plugin and return the engine's configuration.

    Args:
        progress: Called with the bytes that are here and those that are due, while a model is fetched.
        shortens: Whether the context is lowered to what fits into memory where the options name none.
        prepare: Called with each platform's variables before it is probed, where this process is to compute itself.

    Raises:
        CoreError: Something asked for cannot be had, or nothing installed can serve; the message says why.
    """
    return Resolver(options, catalogue, progress, shortens=shortens, prepare=prepare).run()


class Resolver:
    """One resolution. After a failure `reports` holds what was decided until then, the failed selection included."""

    def __init__(
        self,
        options: Options,
        catalogue: Catalogue | None = None,
        progress: Callable[[int, int], None] | None = None,
        *,
        shortens: bool = False,
        prepare: Prepare | None = None,
    ) -> None:
        self.options, self.progress, self.prepare = options, progress, prepare
        self.shortened = {FITTING, None} if shortens else {FITTING}
        self.catalogue, self.files = open_scope(options.select, catalogue)
        self.hooks = Hooks(self.catalogue.entries(HOOKS_GROUP), options=self._hook_options)
        self.selector = Selector(self.catalogue, self.hooks, options=options.runtime.plugin_options)
        self.warnings: list[Problem] = []

    def _hook_options(self, entry: Entry, path: str | None) -> dict[str, Any]:
        """Return the options of a hook module. Raises `ConfigError` CORE-C111."""
        preset = preset_of(entry, switched(self.options))
        return settled_options(entry, path, preset | given_options(entry, self.options.runtime.plugin_options))

    @property
    def reports(self) -> list[SelectionReport]:
        """The selections so far."""
        return self.selector.reports

    def run(self) -> Resolution:
        """Carry out every stage. Raises `CoreError`."""
        self._warn_early()
        require_presets(switched(self.options), self.hooks.entries, self.catalogue)
        base = self._foundation()
        before = len(self.reports)
        derived = self._derive(base)
        proposals = self.hooks.configure(options_view(self.options, base, derived), facts_view(base))
        self.options, patches, notes = apply_patches(self.options, options_view(self.options, base, derived), proposals)
        if patches:
            del self.reports[before:]
            derived = self._derive(base)
        self._warn(*notes, code="CORE-P210")
        config = self._config(base, derived)
        self._check_lock(config.plan)
        self._validate(base, derived)
        wanted = self.options.model.max_model_len
        self._warn(*short_by_default(wanted, derived.max_model_len, base.shape), code="CORE-C202")
        self._warn_failures()
        return Resolution(config, self.reports, base.reader, patches, self.warnings)

    # -- stages ----------------------------------------------------------------------------------------------------

    def _foundation(self) -> Foundation:
        select, model = self.options.select, self.options.model
        chosen = choose_platform(self.selector, select.platform, self._prepare if self.prepare else None)
        self.selector.preferences = chosen.preferences
        source, files = find_files(
            self.selector, select.model_source, model.model, model.revision, access_of(self.options.hub, self.progress)
        )
        loader, reader = find_reader(self.selector, select.load_format, files)
        stored = inspect(self.selector, loader, reader, files)
        checkpoint = with_token_ids(overridden(stored, model))
        implementation, shape = find_model(self.selector, select.model_impl, checkpoint)
        self.reports[-1].notes += described(model)
        self._warn(*doubts(stored, shape, model), code="CORE-C201")
        found = chosen.candidate, chosen.probe
        return Foundation(*found, source, files, loader, reader, checkpoint, implementation, shape, chosen.index)

    def _prepare(self, platform: Candidate) -> None:
        """Hand on the variables of a platform that is about to be probed."""
        if self.prepare is not None:
            self.prepare(self._environment(platform))

    def _derive(self, base: Foundation) -> Derived:
        select = self.options.select
        quantization = choose_quantization(self.selector, self.options, base)
        dtype = self._dtype(base, quantization.spec(QuantSpec))
        kv_dtype = self.options.kv.concrete_dtype(dtype, demanded_kv_dtype(base.checkpoint.quantization_config))
        platform = base.platform.spec(PlatformSpec)
        block_size = block_size_of(self.options.kv.block_size, platform.block_size, base.shape)
        task = choose_task(self.selector, self.options.model, base.checkpoint, base.shape)
        for fault in task.faults:
            self._warn(fault.message, code=fault.code)
        if task.decodes:  # what others read may be numbers
            require_tokenizer(base.checkpoint)
        step_tokens = self.options.scheduler.max_num_batched_tokens or task.step_tokens or platform.step_tokens
        max_model_len, excess = context_of(self.options.model.max_model_len, task.context, base.shape)
        self._judge(excess)
        attention = choose_attention(
            self.selector, select.attention_backend, base, dtype=dtype, kv_dtype=kv_dtype, block_size=block_size
        )
        drivers = [
            quantization,
            attention,
            self.selector.choose(EXECUTOR, select.executor),
            self.selector.choose(SCHEDULER, select.scheduler_policy),
            *([task.plugin] if task.plugin else ()),
            *self._optional(base, task),
            *self._kernels(base, dtype, quantization),
        ]
        return Derived(drivers, dtype, kv_dtype, block_size, step_tokens, max_model_len, task)

    def _dtype(self, base: Foundation, quantization: QuantSpec) -> str:
        platform = base.platform.spec(PlatformSpec)
        wanted = self.options.model.dtype
        if wanted != "auto":
            if wanted not in platform.dtypes:
                self._warn(
                    f"{wanted} is not among the dtypes that platform '{platform.name}' runs well", code="CORE-C113"
                )
            return wanted
        usable = [dtype for dtype in platform.dtypes if dtype in quantization.dtypes]
        if not usable:
            raise PluginError(
                "CORE-P203",
                f"platform '{platform.name}' computes in {', '.join(platform.dtypes)}, quantization method "
                f"'{quantization.name}' in {', '.join(sorted(quantization.dtypes))}: no dtype suits both.",
                hint="Set --dtype to decide.",
            )
        return base.shape.dtype if base.shape.dtype in usable else usable[0]

    def _optional(self, base: Foundation, task: ChosenTask) -> list[Candidate]:
        """Choose what takes part only when the user names it."""
        select, device = self.options.select, base.device

        def moves_blocks(candidate: Candidate) -> Verdict:
            return Verdict.of(
                device_reason(device, candidate.spec(KVConnectorSpec).devices),
                None if keeps_blocks(base.shape) else "the model keeps no keys and values",
                "the model keeps recurrent states, which blocks do not hold" if base.shape.recurrent else None,
            )

        facts = FormatFacts.of(base.checkpoint.path) if select.tool_parser or select.reasoning_parser else FormatFacts()
        chosen = choose_parsers(self.selector, select.tool_parser, select.reasoning_parser, facts)
        for name in select.kv_connector:
            chosen.append(self.selector.choose(KV_CONNECTOR, name, check=moves_blocks, subject=device))
        chosen += choose_participants(self.selector, select.participant, device, task.name)
        if select.weight_transfer:
            chosen.append(self.selector.choose(WEIGHT_TRANSFER, select.weight_transfer))
        if select.weight_store:
            chosen.append(self.selector.choose(WEIGHT_STORE, select.weight_store))
        if task.decodes:
            chosen += choose_backends(self.selector, select.structured_output)
        chosen += choose_io_processor(
            self.selector, select.io_processor, base.checkpoint, driven=task.drives(IO_PROCESSOR.group)
        )
        chosen += choose_template_engine(self.selector, select.chat_template_engine)
        if task.decodes:
            chosen += choose_tool_client(self.selector, self.options)
        if select.drafter:
            reason = None if task.decodes else "the model gives vectors, no tokens"
            if base.shape.recurrent:
                reason = "the model keeps recurrent states, from which a refused draft cannot be taken back"
            chosen.append(self.selector.choose(DRAFTER, select.drafter, check=lambda _: Verdict.of(reason)))
        asked = [*select.route, *self._figures_by_other_names()]
        routes = [*self._automatic_routes(asked), *asked]
        for kind, names in ((LOGITS, select.logits_processor), (STAT_SINK, select.stat_sink), (ROUTE, routes)):
            chosen += [self.selector.choose(kind, name) for name in dict.fromkeys(names)]
        check_fields(chosen)
        return chosen + choose_of_defined(self.selector, self.options)

    def _automatic_routes(self, asked: Sequence[str]) -> list[str]:
        """Return the route plugins that are served wherever they are installed, but those that the user names."""
        candidates, _ = load_descriptors(self.selector.catalogue.entries(ROUTE.group))
        found = [one.entry for one in candidates if one.spec(RouteSpec).automatic]
        return sorted({entry.name for entry in found if not any(answers(name, entry) for name in asked)})

    def _figures_by_other_names(self) -> list[str]:
        """Return the route plugin that shows core's figures by other names, if the user wants one."""
        name = self.options.server.metrics_compat
        return [] if name == NONE else [name]

    def _kernels(self, base: Foundation, dtype: str, quantization: Candidate) -> list[Candidate]:
        place = KernelPlace(base.device, dtype, base.probe, base.checkpoint.quantization)
        forms = stored_forms(quantization, base.checkpoint)
        return plan_kernels(self.selector, self.options.select.kernel, place, forms)

    # -- result ----------------------------------------------------------------------------------------------------

    def _config(self, base: Foundation, derived: Derived) -> EngineConfig:
        return EngineConfig(
            options=self.options.complete().with_memory_fraction(base.platform.spec(PlatformSpec).memory_fraction),
            files=base.files,
            checkpoint=base.checkpoint,
            shape=base.shape,
            plan=self._plan(drivers_of(base, derived)),
            dtype=derived.dtype,
            kv_dtype=derived.kv_dtype,
            max_model_len=derived.max_model_len,
            block_size=derived.block_size,
            step_tokens=derived.step_tokens,
            shortens=self.options.model.max_model_len in self.shortened,
            probe=base.probe,
            device_index=base.index,
            environment=self._environment(base.platform),
            task=derived.task.name,
            task_data=dict(derived.task.data),
            decodes=derived.task.decodes,
        )

    def _environment(self, platform: Candidate) -> dict[str, str]:
        """Return the variables that the platform wants for the processes that load its libraries."""
        path = platform.spec(PlatformSpec).environment
        if path is None:
            return {}
        found = guarded(platform.entry, path, load_impl(path, platform.entry), self.options.runtime.threads)
        return {str(name): str(value) for name, value in typed(platform.entry, path, found, dict).items()}

    def _plan(self, drivers: list[Candidate]) -> PluginPlan:
        given = self.options.runtime.plugin_options
        active = [*(candidate.entry for candidate in drivers), *self.hooks.entries]
        self._warn(*unused_options(given, active, self.catalogue), code="CORE-C112")
        return PluginPlan(
            drivers=tuple(_planned(one, checked_options(one, given_options(one.entry, given))) for one in drivers),
            hooks=tuple(_entered(entry, HOOKS.api, self.hooks.options(entry)) for entry in self.hooks.entries),
            files=tuple(self.files),
        )

    def _check_lock(self, plan: PluginPlan) -> None:
        """Hold the plan against the lock file, if one is given."""
        select = self.options.select
        if select.plugins_lock is None:
            return
        found = differences(read_lock(select.plugins_lock), plan, self.options.model.model or "")
        if found and select.strict:
            raise PluginError(
                "CORE-P310",
                f"the plugins differ from lock file {select.plugins_lock}: {'; '.join(found)}.",
                hint="Restore what was locked, or write the file again with `core plugins lock FILE MODEL`.",
            )
        self._warn(*(f"differs from lock file {select.plugins_lock}: {text}" for text in found), code="CORE-P310")

    def _validate(self, base: Foundation, derived: Derived) -> None:
        """Let plugins judge the final configuration; their errors stop the start, all of them at once."""
        found = self.hooks.validate(options_view(self.options, base, derived))
        self._judge([_signed(entry, problem) for entry, problem in found])

    def _judge(self, problems: list[Problem]) -> None:
        """Let plugins waive errors; warn of what is left over, and raise if errors are left."""
        errors, warnings = settle(self.hooks, problems)
        self.warnings += [warning for warning in warnings if warning not in self.warnings]
        if errors:
            text = " · ".join(problem.message for problem in errors)
            raise ConfigError(errors[0].code, text, hint=" ".join(problem.hint for problem in errors if problem.hint))

    # -- warnings --------------------------------------------------------------------------------------------------

    def _warn(self, *messages: str, code: str) -> None:
        found = [Problem(level="warning", code=code, message=message) for message in messages]
        self.warnings += [one for one in found if one not in self.warnings]  # what is derived again is told once

    def _warn_early(self) -> None:
        """Tell what is wrong with what is installed or named.

        Raises:
            PluginError: CORE-P163, a hook module that guards cannot be used; CORE-P102, a kind has two definitions.
        """
        for fault in require_one_definition():
            self._warn(fault.message, code=fault.code)
        for name in self.catalogue.useless_disables():
            self._warn(f"'{name}' is disabled, but nothing of that name is installed", code="CORE-P101")
        for name in self.catalogue.unknown_names():
            self._warn(f"--plugins names '{name}', but nothing of that name is installed", code="CORE-P101")
        for failure in self.hooks.failures:
            if guard := failed_guard(failure, strict=self.options.select.strict):
                raise guard
            error = failure.error()
            self._warn(error.message, code=error.code)

    def _warn_failures(self) -> None:
        """A plugin that failed is told even when another one was chosen: it is installed to be used.

        Not one for libraries that are not here: those of other devices are not.
        """
        seen = set()
        for report in self.reports:
            for row in report.rows:
                key = (report.group, row.name, row.dist)
                if row.state == "failed" and key not in seen:
                    seen.add(key)
                    label = kind_of(report.group).label
                    text = f"{label} '{row.name}' ({row.dist} {row.version}) is not usable: {'; '.join(row.reasons)}"
                    self._warn(text, code=row.code)


def _planned(candidate: Candidate, options: dict[str, Any]) -> PlannedPlugin:
    entered = _entered(candidate.entry, candidate.descriptor.api, options)
    return entered.model_copy(update={"reference_only": candidate.reference_only})


def _entered(entry: Entry, api: int, options: dict[str, Any]) -> PlannedPlugin:
    return PlannedPlugin(
        group=entry.group,
        name=entry.name,
        value=entry.value,
        dist=entry.dist,
        version=entry.version,
        api=api,
        options=options,
    )


def _signed(entry: Entry, problem: Problem) -> Problem:
    """Return an error with its author; a warning stays as it is."""
    if problem.level == "warning":
        return problem
    return problem.model_copy(update={"message": f"{problem.message} (says {entry.name}, {entry.owner})"})
