"""From the plugin plan to the worker halves of its participants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from core.api.descriptors import DrafterSpec, KVConnectorSpec, ParticipantSpec
from core.api.drafters import DrafterContext
from core.api.errors import PluginError
from core.api.participants import Tap, WorkerParticipant, WorkerSetup
from core.plugins.kinds import kind_of
from core.worker.participants.connectors import ConnectorWorkerHalf
from core.worker.participants.drafts import DraftsWorkerHalf, MirroredDrafts
from core.worker.participants.stages import WorkerStages

if TYPE_CHECKING:
    from core.layers.taps import Taps
    from core.plugins.active import ActivePlugins
    from core.plugins.plan import PlannedPlugin

CONNECTORS, PARTICIPANTS, DRAFTERS = "core.kv_connectors", "core.participants", "core.drafters"


def bind_worker_halves(active: ActivePlugins) -> None:
    """Import the worker halves of the plan, so that a mistake in one is told before the weights are read.

    Raises:
        PluginError: One cannot be imported, or is no participant.
    """
    active.bind(DRAFTERS)
    for planned, spec in active.specs(CONNECTORS):
        active.load(planned, cast(KVConnectorSpec, spec).worker_impl)
    for planned, spec in active.specs(PARTICIPANTS):
        path = cast(ParticipantSpec, spec).worker_impl
        if path is not None:
            active.load(planned, path)


def tapped(active: ActivePlugins) -> frozenset[str]:
    """Return what the plan's participants read of forward passes."""
    return frozenset(name for _, spec in active.specs(PARTICIPANTS) for name in cast(ParticipantSpec, spec).taps)


def check_taps(active: ActivePlugins, taps: Taps, model: str) -> None:
    """Refuse participants that read what the model does not leave. Raises `PluginError` CORE-P250."""
    for planned, spec in active.specs(PARTICIPANTS):
        taps.check(_owner(planned), cast(ParticipantSpec, spec).taps, model)


def worker_stages(
    active: ActivePlugins,
    caches: Sequence[Tensor],
    pool: Tensor,
    vocab_size: int,
    block_size: int,
    draft_tokens: int = 0,
    *,
    taps: Mapping[str, Tap] | None = None,
    apart: bool = False,
) -> WorkerStages:
    """Make the worker halves of the plan's participants.

    Args:
        caches: KV cache of each layer.
        pool: `(max_rows, tokens)` int32, the tokens of every row.
        draft_tokens: Most drafts of a row in a step.
        taps: What layers leave in forward passes.
        apart: The device has memory of its own.
    """
    halves: list[WorkerParticipant] = []
    owners: dict[str, str] = {}
    for planned, spec, _ in active.impls(CONNECTORS):
        half, guard = active.load(planned, cast(KVConnectorSpec, spec).worker_impl), active.guard
        worker = guard(planned, "the constructor of its worker half", half, planned.options)
        guard(planned, "bind()", worker.bind, caches)
        halves.append(ConnectorWorkerHalf(planned.name, worker))
        owners[planned.name] = _owner(planned)
    for planned, spec, _ in active.impls(DRAFTERS):
        most = min(draft_tokens, cast(DrafterSpec, spec).max_draft)
        drafter = active.make(planned, DrafterContext(len(pool), most, vocab_size, planned.options))
        kind = MirroredDrafts if apart else DraftsWorkerHalf
        halves.append(kind(planned.name, drafter, most, vocab_size, pool))
        owners[planned.name] = _owner(planned)
    for planned, spec, _ in active.impls(PARTICIPANTS):
        found = cast(ParticipantSpec, spec)
        if found.worker_impl is None:
            continue
        own = {name: tap for name, tap in (taps or {}).items() if name in found.taps}
        setup = WorkerSetup(planned.name, planned.options, caches, pool, vocab_size, block_size, own, active.chosen)
        made = active.guard(
            planned, "the constructor of its worker half", active.load(planned, found.worker_impl), setup
        )
        made.name = planned.name
        if found.parts is not None:
            made.parts = active.load(planned, found.parts)
        halves.append(made)
        owners[planned.name] = _owner(planned)
    return WorkerStages(halves, owners, vocab_size)


def joined_calls(own: Mapping[str, Callable[..., Any]], stages: WorkerStages) -> dict[str, Callable[..., Any]]:
    """Return a worker's own methods and those of its participants. Raises `PluginError` CORE-P181 for a taken name."""
    further = stages.calls()
    taken = sorted(set(own) & set(further))
    if taken:
        raise PluginError("CORE-P181", f"a participant's worker half offers calls that exist: {', '.join(taken)}.")
    return {**own, **further}


def _owner(planned: PlannedPlugin) -> str:
    return f"{kind_of(planned.group).label} {planned.owner}"
