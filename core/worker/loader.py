"""From a resolved configuration to a model that is ready to run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from core.api.attention import AttentionContext, KVLayout
from core.api.errors import CheckpointError, ConfigError
from core.api.quantization import QuantContext
from core.layers.builder import Builder
from core.layers.guard import Owners, blamed
from core.layers.kernels import KernelTable, PlannedKernel, PlannedReference
from core.layers.taps import Taps
from core.plugins.handed import REPLAYABLE, WEIGHT_TENSOR, Handed
from core.plugins.kinds import kind_of
from core.selection.kernels import firmly_commanded, parse_kernels
from core.worker.assembly import tapped
from core.worker.loading.fill import WeightFiller
from core.worker.loading.kept import PackedWeights
from core.worker.loading.names import NameMap
from core.worker.loading.scales import aliases, scale_groups
from core.worker.loading.uploaded import uploaded
from core.worker.memory import gib

if TYPE_CHECKING:
    from core.api.attention import AttentionBackend, Replayable
    from core.api.descriptors import AttentionSpec, KernelSpec, ModelSpec, QuantSpec, WeightLoaderSpec
    from core.api.kernels import KernelRequest
    from core.api.kvspecs import KVSpec
    from core.api.models import Model
    from core.api.platform import Uploads
    from core.api.verdict import ProbeResult, Verdict
    from core.api.weights import CheckpointReader, WeightTensor
    from core.config.resolved import EngineConfig
    from core.layers.attention import CachedAttention
    from core.layers.parameter import PositionTable
    from core.layers.params import Group
    from core.layers.rope import RotaryEmbedding
    from core.layers.states import StateMemory
    from core.plugins.active import ActivePlugins
    from core.plugins.plan import PlannedPlugin, PluginPlan

log = logging.getLogger(__name__)

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_KV_DTYPES = _DTYPES | {
    "int8": torch.int8,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}

_LOADERS = "core.weight_loaders"

PLAIN = "none"
"""Method of checkpoints whose weights are not quantized."""

_SCALED = frozenset({"float8_e4m3fn", "float8_e5m2"})
"""Caches that a checkpoint's scales are for; int8 has a scale for each token."""


class LoadedModel:
    """A model with its weights.

    Attributes:
        model: Ready for `forward` and `logits`, once each attention's `kv` is bound.
        attentions: Its attention layers, by layer.
        backend: The attention backend that made them.
        num_parameters: Values read from the checkpoint.
        weight_bytes: What its weights take at least; known before they are read.
        kernels: Which forms of operations its layers were given.
        owners: Whose it and its layers are, for errors.
        replayable: The backend again, if its descriptor says that it makes plans for graphs.
        replays_prompts: Whether it makes them of steps with prompts, too.
        graphs: Whether its steps may run by a platform's graphs.
        taps: What its layers leave for participants.
        states: Memory for recurrent states, which the worker allocates.
    """

    def __init__(
        self,
        model: Model,
        attentions: list[CachedAttention],
        backend: AttentionBackend,
        filler: WeightFiller,
        kernels: KernelTable,
        tables: Sequence[RotaryEmbedding | PositionTable] = (),
        owners: Owners | None = None,
        replayable: Replayable | None = None,
        taps: Taps | None = None,
        states: Sequence[StateMemory] = (),
        *,
        replays_prompts: bool = False,
        graphs: bool = True,
    ) -> None:
        self.states = states
        self.taps = taps or Taps()
        self.replayable, self.replays_prompts = replayable, replays_prompts
        self.graphs = graphs
        self.model = model
        self.owners = owners or Owners()
        self.attentions = attentions
        self.backend = backend
        self.num_parameters = 0
        self.weight_bytes = filler.final_bytes
        self.kernels = kernels
        self._filler = filler
        self._kept: PackedWeights | None = None
        self._tables = tables
        self._after_load: Callable[[], None] | None = getattr(model, "after_load", None)

    def load(self, tensors: Iterator[WeightTensor], kept: PackedWeights) -> None:
        """Fill the model for the first time, from what is kept of its weights as far as it goes.

        Raises:
            CheckpointError: As `reload`.
        """
        self._kept = kept
        self.num_parameters = self._filler.fill(tensors, kept.find())
        self._loaded()

    @property
    def groups(self) -> Sequence[Group]:
        """Groups of parameters that are filled."""
        return self._filler.groups

    @property
    def mapped_bytes(self) -> int:
        """Bytes that the system counts as free although weights lie there, as they map a file."""
        return 0 if self._kept is None else self._kept.num_bytes

    def keep(self) -> None:
        """Begin to keep what was packed, if it is to be kept; the start is done."""
        if self._kept is not None:
            self._kept.begin()

    def close(self) -> None:
        """Let what is being kept come to its end. Harmless when called again."""
        if self._kept is not None:
            self._kept.close()

    def reload(self, tensors: Iterator[WeightTensor]) -> None:
        """Replace all weights between two steps; the old ones stay in use until all of `tensors` was read and checked.

        Raises:
            CheckpointError: `tensors` is not exactly what the model needs; the old weights stay.
        """
        if self._kept is not None:
            self._kept.give_up()
        self.num_parameters = self._filler.fill(tensors)
        self._loaded()

    def invent(self) -> None:
        """Replace all weights by made-up ones."""
        self.num_parameters = self._filler.invent()
        self._loaded()

    def _loaded(self) -> None:
        with blamed(self.owners.attention, "after_load()"):
            for attention in self.attentions:
                attention.after_load()
        if self._after_load is not None:
            with blamed(self.owners.model, "after_load()"):
                self._after_load()

    def prepare(self, max_model_len: int) -> None:
        """Make the tables that depend on the context, once it is known how much of it fits."""
        for table in self._tables:
            table.prepare(max_model_len)


def kv_layouts(loaded: LoadedModel) -> list[tuple[CachedAttention, KVSpec, KVLayout]]:
    """Return the attention layers, by layer, each with what it keeps of the past and the layout of its KV blocks."""
    attentions = sorted(loaded.attentions, key=lambda attention: attention.site.layer)
    with blamed(loaded.owners.attention, "kv_spec()"):
        specs = [attention.spec(loaded.backend) for attention in attentions]
    with blamed(loaded.owners.attention, "kv_layout()"):
        layouts = [_layout(attention.layout(loaded.backend)) for attention in attentions]
    return list(zip(attentions, specs, layouts, strict=True))


def _layout(found: object) -> KVLayout:
    if not isinstance(found, KVLayout):
        raise TypeError(f"a {type(found).__name__} is no KVLayout")
    return found


def _none() -> None:
    """Return nothing: torch copies the weights."""


def load_model(
    config: EngineConfig,
    active: ActivePlugins,
    device: torch.device,
    progress: Callable[[int, int], None],
    *,
    check: Callable[[LoadedModel], object] | None = None,
    uploads: Callable[[], Uploads | None] = _none,
) -> LoadedModel:
    """Build the model on `device` and stream its weights in, one checkpoint tensor at a time.

    Args:
        progress: Called with bytes read so far and in all.
        check: Called with the model before any weight is read; what it raises ends the loading.
        uploads: Returns what brings plain weights to the device, if the platform has something for that.

    Raises:
        CheckpointError: The checkpoint is not what its configuration says (see `LoadedModel.reload`).
    """
    path = config.checkpoint.path
    try:
        loaded = build_model(config, active, device)
        if check is not None:
            check(loaded)
        if cast("WeightLoaderSpec", active.spec(_LOADERS)).invents:
            loaded.invent()
            return loaded
        meter = _Meter(config.checkpoint.num_bytes, progress)
        owner = _owner(config.plan, _LOADERS)
        tensors = _tensors(active, owner, Path(path), meter.add)
        way = uploads() if _stays_plain(config, active) else None
        kept = PackedWeights(config, active, loaded.groups, device)
        loaded.load(tensors if way is None else uploaded(tensors, way), kept)
    except CheckpointError as error:  # layers do not know from which files they are filled
        told = error.within(path)
        if told is error:
            raise
        raise told from error
    return loaded


def _stays_plain(config: EngineConfig, active: ActivePlugins) -> bool:
    """Say whether the weights are plain, and nothing rounds them while they load: what packs them works on the host."""
    spec = cast("QuantSpec", active.spec("core.quantization"))
    return config.checkpoint.quantization == PLAIN and not spec.needs_request(PLAIN)


def _tensors(active: ActivePlugins, owner: str, path: Path, report: Callable[[int], None]) -> Iterator[WeightTensor]:
    """Yield the checkpoint's tensors. Raises `PluginError`: CORE-P108, the weight loader raised; CORE-P160."""
    reader: CheckpointReader = active.new_of(_LOADERS)
    handed = Handed(owner)
    for tensor in active.guard_items(active.planned(_LOADERS), "tensors()", reader.tensors, path, report):
        yield handed.fit("tensors()", tensor, WEIGHT_TENSOR)


def build_model(config: EngineConfig, active: ActivePlugins, device: torch.device) -> LoadedModel:
    """Build the model without weights: nothing can be run before the first `reload`."""
    dtype = torch_dtype(config.dtype)
    own = active.options("core.attention_backends")
    spec = cast("AttentionSpec", active.spec("core.attention_backends"))
    context = AttentionContext(device, dtype, kv_torch_dtype(config.kv_dtype), config.block_size, own)
    backend = active.impl("core.attention_backends")(context)
    checkpoint = config.checkpoint
    planned = config.plan.one("core.quantization")
    options = planned.options if planned else {}
    reader = active.impl("core.quantization")(QuantContext(device, dtype, checkpoint.quantization_config, options))
    kernels = _kernels(config, active, device)
    taps = Taps(tapped(active))
    builder = Builder(
        reader,
        backend,
        method=checkpoint.quantization,
        device=device,
        dtype=dtype,
        max_positions=config.max_model_len,
        kernels=kernels,
        wrap=active.hooks.layer if active.hooks.has("core_layer") else None,
        options=active.options("core.models"),
        owners=(owners := _owners(config.plan)),
        taps=taps,
        rotates="rotary" in spec.features,
    )
    model_class = active.impl("core.models")
    # Formats without a config.json know the architecture, but keep it out of the configuration.
    settings = {"architectures": [checkpoint.architecture], **checkpoint.config}
    with blamed(owners.model, "its constructor"):
        model = model_class(settings, builder)
    with blamed(owners.model, "weight_rules()"):
        rules = model_class.weight_rules(settings)
    attentions = sorted(builder.attentions, key=lambda one: one.site.layer)
    rounded, by_head = config.kv_dtype in _SCALED, "head_scales" in spec.features
    scales = scale_groups(builder.scaled, rounded=rounded, by_head=by_head)
    names = NameMap(rules, builder.left_out, aliases(scales))
    filler = WeightFiller([*builder.groups, *scales], names, device)
    warn_opened(kernels, config.options.select.kernel)
    return LoadedModel(
        model,
        attentions,
        backend,
        filler,
        kernels,
        [*(rope for _, rope in builder.ropes), *builder.position_tables],
        owners,
        _replayable(backend, spec, owners.attention),
        taps,
        builder.states,
        replays_prompts="replayable_prompts" in spec.features,
        graphs=cast("ModelSpec", active.spec("core.models")).graphs,
    )


def _replayable(backend: AttentionBackend, spec: AttentionSpec, owner: str) -> Replayable | None:
    """Return a backend that makes plans for graphs. Raises `PluginError` CORE-P160 for one that only says so."""
    if "replayable" not in spec.features:
        return None
    replayable: Replayable = Handed(owner).fit("the feature `replayable`", cast("Replayable", backend), REPLAYABLE)
    return replayable


def _kernels(config: EngineConfig, active: ActivePlugins, device: torch.device) -> KernelTable:
    """Return the plan's kernels, which are imported when a layer asks for what they do."""
    kernels, references = [], {}
    for planned, descriptor in active.specs("core.kernels"):
        spec, owner = cast("KernelSpec", descriptor), f"{planned.dist} {planned.version}"
        if spec.reference is not None:
            load = cache(partial(_reference, active, planned, spec))
            references[spec.op] = PlannedReference(owner, load, spec.multiplies)
        if not planned.reference_only:
            form, refine = (
                cache(partial(_form, active, planned, spec)),
                partial(_refined, active, planned, config.probe),
            )
            kernels.append(PlannedKernel(spec, owner, form, refine))
    asks = config.options.select.kernel
    return KernelTable(
        device.type, config.dtype, kernels, firmly_commanded(asks), references, frozenset(parse_kernels(asks))
    )


def warn_opened(kernels: KernelTable, asks: Sequence[str]) -> None:
    """Say of each form of weights that no kernel multiplies with what that costs, unless the user wants it so."""
    asked = parse_kernels(asks)
    for (op, form), num_bytes in sorted(kernels.opened.items()):
        if op not in asked:
            log.warning(
                "CORE-P239 no installed kernel of %s takes weights of the form %s on %s in %s: core's reference "
                "product opens them, and they take %s of memory. `core plugins why` has every kernel's reasons.",
                *(op, form, kernels.device, kernels.dtype, gib(num_bytes)),
            )


def _form(active: ActivePlugins, planned: PlannedPlugin, spec: KernelSpec) -> Any:
    """Return a kernel's form of its operation: its implementation, or what that makes of the plugin's options."""
    if spec.multiplies:
        return partial(active.load(planned, spec.impl), options=planned.options)
    if spec.options is None:
        return active.load(planned, spec.impl)
    return active.fit_form(planned, active.new(planned))


def _reference(active: ActivePlugins, planned: PlannedPlugin, spec: KernelSpec) -> Any:
    """Return the reference form that a kernel's descriptor names."""
    form = active.load(planned, str(spec.reference))
    return partial(form, options={}) if spec.multiplies else form


def _refined(
    active: ActivePlugins, planned: PlannedPlugin, probe: ProbeResult, path: str, request: KernelRequest
) -> Verdict:
    """Return what a kernel's own function says of a layer's request."""
    verdict: Verdict = active.guard(planned, path, active.load(planned, path), request, probe)
    return verdict


def _owners(plan: PluginPlan) -> Owners:
    """Return whose the parts of a forward pass are."""
    groups = ("core.models", "core.attention_backends", "core.quantization", "core.platforms")
    return Owners(*(_owner(plan, group) for group in groups))


def _owner(plan: PluginPlan, group: str) -> str:
    label, planned = kind_of(group).label, plan.one(group)
    return f"the {label}" if planned is None else f"{label} {planned.owner}"


def torch_dtype(name: str) -> torch.dtype:
    """Return the dtype of this name. Raises `ConfigError` CORE-C160 for a name that is no compute dtype."""
    if name not in _DTYPES:
        raise ConfigError("CORE-C160", f"dtype '{name}' is not one of {', '.join(_DTYPES)}.")
    return _DTYPES[name]


def kv_torch_dtype(name: str) -> torch.dtype:
    """Return the dtype of this name. Raises `ConfigError` CORE-C160 for a name that is no dtype of a KV cache."""
    if name not in _KV_DTYPES:
        raise ConfigError("CORE-C160", f"KV cache dtype '{name}' is not one of {', '.join(_KV_DTYPES)}.")
    return _KV_DTYPES[name]


class _Meter:
    """Adds up the bytes of single tensors for the caller's progress display."""

    def __init__(self, total: int, progress: Callable[[int, int], None]) -> None:
        self._done = 0
        self._total = total
        self._progress = progress

    def add(self, num_bytes: int) -> None:
        self._done += num_bytes
        self._progress(self._done, self._total)
