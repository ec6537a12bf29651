"""Attention backends: every batch that a scheduler can make, against dense attention in float32."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from core.api.descriptors import AttentionRequest, AttentionSpec
from core.api.verdict import Verdict
from core_testing.conformance.outcome import Level, NotApplicable, Unavailable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import device_of, largest_difference, plainest, probe_of, wait
from core_testing.conformance.tools.generate import for_all, need_hypothesis
from core_testing.conformance.tools.paged import Geometry, PagedBench, Step
from core_testing.conformance.tools.timing import speed_ratio

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

LENGTHS = (1, 5, 16, 17, 40, 33)
"""Sequences at, before and behind the edges of a block of 16."""

_GARBAGE = 2.0e4


def prefill_matches_reference(subject: Subject) -> None:
    """Whole prompts of several lengths in one step."""
    PagedBench(subject, base_geometry(subject), LENGTHS).step(LENGTHS)


def decode_matches_reference(subject: Subject) -> None:
    """One token each of sequences of several lengths, three steps long."""
    bench = PagedBench(subject, base_geometry(subject), [length + 3 for length in LENGTHS])
    bench.step(LENGTHS, check=False)
    for _ in range(3):
        bench.step([1] * len(LENGTHS))


def mixed_batch_matches_reference(subject: Subject) -> None:
    """Prompts, later pieces of prompts and single tokens in one step, in any order."""
    bench = PagedBench(subject, base_geometry(subject), (50, 20, 41, 9, 30))
    bench.step((20, 19, 0, 0, 17), check=False)
    bench.step((30, 1, 40, 9, 1))


def chunked_prefill_equals_whole(subject: Subject) -> None:
    """A prompt in pieces of any size gives what it gives at once."""
    geometry = base_geometry(subject)
    whole = PagedBench(subject, geometry, (61, 47)).step((61, 47))[0]
    bench = PagedBench(subject, geometry, (61, 47))
    pieces = [bench.step(counts, check=False)[0] for counts in ((7, 16), (16, 15), (1, 16), (37, 0))]
    first = torch.cat([pieces[0][:7], pieces[1][:16], pieces[2][:1], pieces[3]])
    second = torch.cat([pieces[0][7:], pieces[1][16:], pieces[2][1:]])
    error = largest_difference(torch.cat([first, second]), whole)
    allowed = geometry.tolerance(bench.device)
    require(error <= allowed, f"a prompt in pieces differs from the whole by {error:.2g}, allowed {allowed:g}")


def grouped_heads_match_reference(subject: Subject) -> None:
    """Query heads that share a key and value head, in every usual ratio."""
    base = base_geometry(subject)
    pairs = ((4, 4), (4, 2), (4, 1), (6, 2), (16, 2))
    _every(subject, (replace(base, heads=heads, kv_heads=kv_heads) for heads, kv_heads in pairs))


def head_dims_match_reference(subject: Subject) -> None:
    """Every head dimension that is declared; the usual ones if all are allowed."""
    base = base_geometry(subject)
    dims = subject.spec(AttentionSpec).head_dims or (16, 24, 32, 64, 80, 96, 128)
    _every(subject, (replace(base, head_dim=dim) for dim in sorted(dims)))


def block_sizes_match_reference(subject: Subject) -> None:
    """Block sizes that are multiples of what the descriptor asks for, odd ones included."""
    base, step = base_geometry(subject), subject.spec(AttentionSpec).block_multiple
    sizes = sorted({step, 3 * step, -(-8 // step) * step, -(-32 // step) * step, -(-64 // step) * step})
    _every(subject, (replace(base, block_size=size) for size in sizes))


def every_dtype_matches_reference(subject: Subject) -> None:
    """Every declared pair of a compute dtype and a cache dtype."""
    base, spec = base_geometry(subject), subject.spec(AttentionSpec)
    pairs = [(dtype, kv_dtype) for dtype in sorted(spec.dtypes) for kv_dtype in sorted(spec.kv_dtypes)]
    _every(subject, (replace(base, dtype=dtype, kv_dtype=kv_dtype) for dtype, kv_dtype in pairs))


def scales_are_applied(subject: Subject) -> None:
    """Keys and values far beyond the range of a float8 cache come through scales, where its layers take any."""
    base, spec = base_geometry(subject), subject.spec(AttentionSpec)
    found = [replace(base, kv_dtype=one) for one in sorted(spec.kv_dtypes) if one.startswith("float8")]
    geometry = next((one for one in found if supports(subject, one)), None)
    if geometry is None:
        raise NotApplicable("it has no cache of float8")
    bench = PagedBench(subject, geometry, (37, 18, 50))
    if not hasattr(bench.layers[0], "use_scales"):
        raise NotApplicable("its layers take no scales")
    key, value = 2.0**17, 2.0**18  # of powers of two, so that nothing is rounded besides
    heads = torch.ones(())
    if "head_scales" in spec.features:
        heads = 2.0 ** torch.arange(geometry.kv_heads)  # keys of each head in a range of their own
    for layer in bench.layers:
        layer.use_scales(key * heads, torch.tensor(value))
    by_head = heads.expand(geometry.kv_heads)[:, None]
    by_query = by_head.repeat_interleave(geometry.heads // geometry.kv_heads, dim=0)
    for row in bench.rows:
        factors = ((row.q, 1 / (key * by_query)), (row.k, key * by_head), (row.v, value))
        row.q, row.k, row.v = ([one * factor for one in many] for many, factor in factors)
    for counts in ((35, 0, 30), (1, 17, 19), (1, 1, 1)):
        step = bench.prepare(counts)
        for layer, output in enumerate(bench.run(step)):
            error = largest_difference(output / value, bench.reference(step, layer) / value)
            allowed = geometry.tolerance(bench.device)
            require(error <= allowed, f"with scales an output is off by {error:.2g}, allowed {allowed:g} ({geometry})")


def sliding_window_matches_reference(subject: Subject) -> None:
    """Windows smaller and greater than a block, and greater than the sequence."""
    _need(subject, "sliding_window")
    _every(subject, (replace(base_geometry(subject), windows=(window,)) for window in (1, 7, 16, 21, 100)))


def chunks_match_reference(subject: Subject) -> None:
    """Chunks smaller and greater than a block, and greater than the sequence."""
    _need(subject, "chunked")
    _every(subject, (replace(base_geometry(subject), chunk=chunk) for chunk in (1, 7, 16, 21, 100)))


def sinks_match_reference(subject: Subject) -> None:
    """A sink in each head, alone and under a window."""
    _need(subject, "sinks")
    base = replace(base_geometry(subject), sinks=True)
    windowed = "sliding_window" in subject.spec(AttentionSpec).features
    _every(subject, [base, replace(base, windows=(9,))] if windowed else [base])


def softcap_matches_reference(subject: Subject) -> None:
    """Scores bent by a soft cap, alone and under a window."""
    _need(subject, "softcap")
    base = replace(base_geometry(subject), softcaps=(1.5,))
    windowed = "sliding_window" in subject.spec(AttentionSpec).features
    _every(subject, [base, replace(base, windows=(9,))] if windowed else [base])


def alibi_matches_reference(subject: Subject) -> None:
    """Scores that fall with the distance, by a slope for each head: heads that share keys, and what else it has."""
    _need(subject, "alibi")
    _every(subject, _sloped(subject, replace(base_geometry(subject), alibi=True)))


def alibi_by_root_matches_reference(subject: Subject) -> None:
    """The same, where the distance counts by its square root."""
    _need(subject, "alibi_root")
    _every(subject, _sloped(subject, replace(base_geometry(subject), alibi=True, rooted=True)))


def _sloped(subject: Subject, base: Geometry) -> list[Geometry]:
    features = subject.spec(AttentionSpec).features
    found = [base, *(replace(base, heads=heads, kv_heads=kv) for heads, kv in ((4, 4), (6, 2), (4, 1)))]
    found += [replace(base, windows=(9,))] if "sliding_window" in features else []
    found += [replace(base, softcaps=(1.5,))] if "softcap" in features else []
    return found


def scattered_blocks_match_reference(subject: Subject) -> None:
    """Where in the cache the blocks of a sequence lie makes no difference."""
    geometry = base_geometry(subject)
    outputs = []
    for tidy in (True, False):
        bench = PagedBench(subject, geometry, (70, 33, 90), tidy=tidy)
        bench.step((40, 16, 89), check=False)
        outputs.append(bench.step((30, 17, 1), check=False)[0])
    error = largest_difference(*outputs)
    allowed = geometry.tolerance(bench.device)
    require(error <= allowed, f"scattered blocks change an output by {error:.2g}, allowed {allowed:g}")


def unused_content_does_not_matter(subject: Subject) -> None:
    """Garbage in unused blocks, behind the end of a last block, and in unused table entries is never seen."""
    geometry = base_geometry(subject)
    outputs = []
    for fill, stray in ((0.0, False), (_GARBAGE, False), (-_GARBAGE, True)):
        bench = PagedBench(subject, geometry, (1, 50, 18, 90), fill=fill, stray=stray)
        bench.step((0, 33, 17, 88), check=False)
        mixed = bench.step((1, 16, 1, 1), check=False)[0]
        outputs.append(torch.cat([mixed, bench.step((0, 1, 0, 1), check=False)[0]]))
    error = max(largest_difference(outputs[0], output) for output in outputs[1:])
    allowed = geometry.tolerance(bench.device)
    require(error <= allowed, f"garbage that no token owns changes an output by {error:.2g}, allowed {allowed:g}")


def very_different_lengths_match_reference(subject: Subject) -> None:
    """Sequences of 1 and of several hundred tokens side by side."""
    bench = PagedBench(subject, base_geometry(subject), (2, 700, 3, 259, 1, 17))
    bench.step((1, 690, 2, 258, 0, 16), check=False)
    bench.step((1, 1, 1, 1, 1, 1))
    bench.step((0, 9, 0, 0, 0, 0))


def generated_batches_match_reference(subject: Subject) -> None:
    """Any batch: some tokens already there, some new ones, of any heads, head dimension, block size, window and cap."""
    need_hypothesis()
    device_of(subject)

    def check(drawn: tuple[Geometry, list[tuple[int, int]]]) -> None:
        geometry, rows = drawn
        if not supports(subject, geometry):
            return
        bench = PagedBench(subject, geometry, [done + new for done, new in rows], stray=True)
        if any(done for done, _ in rows):
            bench.step([done for done, _ in rows], check=False)
        bench.step([new for _, new in rows])

    for_all(_batches(subject), check, examples=25)


def one_plan_serves_every_layer(subject: Subject) -> None:
    """A plan is made once and read by all layers, each with a cache, a window and a soft cap of its own."""
    features = subject.spec(AttentionSpec).features
    windows = (None, 6, None) if "sliding_window" in features else (None, None)
    softcaps = (None, 2.0) if "softcap" in features else (None,)
    bench = PagedBench(subject, replace(base_geometry(subject), windows=windows, softcaps=softcaps), (30, 12, 40))
    bench.step((29, 0, 20), check=False)
    bench.step((1, 12, 20))


def blocks_can_be_copied(subject: Subject) -> None:
    """`cache[b]` is block b and all of it: copied elsewhere, with the table pointing there, nothing changes."""
    bench = PagedBench(subject, base_geometry(subject), (52, 40))
    bench.step((50, 38), check=False)
    for row, index in ((0, 0), (0, 3), (1, 1)):
        bench.move_block(row, index)
    bench.step((1, 2))


def writes_touch_only_their_blocks(subject: Subject) -> None:
    """Storing keys and values changes no block but those of the step's slots."""
    bench = PagedBench(subject, base_geometry(subject), (40, 30, 20), fill=3.0)
    bench.step((33, 17, 0), check=False)
    before = [cache.clone() for cache in bench.caches]
    step = bench.prepare((1, 3, 20))
    bench.run(step)
    written = torch.unique(torch.div(step.batch.slots, bench.geometry.block_size, rounding_mode="floor")).tolist()
    kept = [block for block in range(len(before[0])) if block not in written]
    for old, cache in zip(before, bench.caches):
        changed = [block for block in kept if not torch.equal(_bytes(old[block]), _bytes(cache[block]))]
        require(not changed, f"a step that writes to blocks {written} also changed blocks {changed[:5]}")


def leaves_its_inputs_alone(subject: Subject) -> None:
    """Queries, keys, values and the batch's arrays are read only."""
    bench = PagedBench(subject, base_geometry(subject), (20, 9))
    step = bench.prepare((20, 9))
    arrays = {name: getattr(step.batch, name) for name in ("query_starts", "seq_lens", "block_tables", "slots")}
    tensors = {name: bench.inputs(step, 0, name) for name in "qkv"}
    before = {name: torch.as_tensor(value).clone() for name, value in {**arrays, **tensors}.items()}
    plan = bench.backend.plan(step.batch)
    bench.layers[0].write_kv(tensors["k"], tensors["v"], bench.caches[0], plan)
    bench.layers[0].forward(tensors["q"], bench.caches[0], plan)
    for name, value in {**arrays, **tensors}.items():
        require(torch.equal(before[name], torch.as_tensor(value)), f"it writes to its input {name}")


def layout_holds_the_keys_and_values(subject: Subject) -> None:
    """The declared block is large enough for its keys and values in the cache's dtype."""
    geometry = base_geometry(subject)
    bench = PagedBench(subject, geometry, (1,))
    layout = bench.backend.kv_layout(bench.sites[0])
    elements = 2 * geometry.block_size * geometry.kv_heads * geometry.head_dim
    needed = elements * bench.caches[0].element_size()
    require(
        layout.bytes_per_block >= needed,
        f"a block of {geometry.block_size} tokens is said to take {layout.bytes_per_block} bytes, it needs {needed}",
    )


def faster_than_reference(subject: Subject) -> None:
    """Over decode and prefill steps it is faster than the reference backend on the same device."""
    other = _reference(subject)
    geometry = replace(base_geometry(subject), heads=8, kv_heads=2)
    ratios = []
    for lengths, context, counts in (((513,) * 16, (512,) * 16, (1,) * 16), ((512,), (0,), (512,))):
        runs = []
        for one in (subject, other):
            bench = PagedBench(one, geometry, lengths)
            if any(context):
                bench.step(context, check=False)
            runs.append(partial(_run_and_wait, bench, bench.prepare(counts)))
        ratios.append(speed_ratio(*runs))
    speedup = statistics.geometric_mean(ratios)
    require(speedup > 1, f"it runs at {speedup:.2f} times the speed of '{other.entry.name}'")


def _run_and_wait(bench: PagedBench, step: Step) -> None:
    bench.run(step)
    wait(bench.device)


def _batches(subject: Subject) -> SearchStrategy[tuple[Geometry, list[tuple[int, int]]]]:
    """Draw a geometry, and for each row how many tokens are in the cache and how many are new."""
    from hypothesis import strategies

    base, spec = base_geometry(subject), subject.spec(AttentionSpec)
    windows: tuple[int | None, ...] = (None, 1, 5, 24) if "sliding_window" in spec.features else (None,)
    softcaps: tuple[float | None, ...] = (None, 3.0) if "softcap" in spec.features else (None,)
    geometries = strategies.builds(
        lambda heads, dim, blocks, window, softcap: replace(
            base,
            heads=heads[0],
            kv_heads=heads[1],
            head_dim=dim,
            block_size=blocks * spec.block_multiple,
            windows=(window,),
            softcaps=(softcap,),
        ),
        strategies.sampled_from(((1, 1), (4, 2), (6, 1), (12, 3))),
        strategies.sampled_from(sorted(spec.head_dims) if spec.head_dims is not None else (8, 40, 64, 96)),
        strategies.integers(1, 5),
        strategies.sampled_from(windows),
        strategies.sampled_from(softcaps),
    )
    row = strategies.tuples(strategies.integers(0, 60), strategies.integers(1, 40))
    return strategies.tuples(geometries, strategies.lists(row, min_size=1, max_size=6))


def base_geometry(subject: Subject) -> Geometry:
    """Return a geometry that the plugin takes: float32 and head dimension 64 where it can be.

    Raises:
        Unavailable: Its `refine` refuses this machine.
    """
    spec = subject.spec(AttentionSpec)
    dims = spec.head_dims
    geometry = Geometry(
        head_dim=64 if dims is None or 64 in dims else min(dims),
        block_size=-(-16 // spec.block_multiple) * spec.block_multiple,
        dtype=plainest(spec.dtypes),
        kv_dtype=plainest(spec.kv_dtypes),
    )
    device_of(subject)
    verdict = _verdict(subject, geometry)
    if not verdict.ok:
        raise Unavailable(f"it refuses this machine: {'; '.join(verdict.reasons)}")
    return geometry


def _every(subject: Subject, geometries: Iterable[Geometry]) -> None:
    """Run prefill, a later piece and decode in every geometry that the plugin supports."""
    device_of(subject)
    supported = [one for one in geometries if supports(subject, one)]
    if not supported:
        raise NotApplicable("it supports none of the geometries of this check")
    for geometry in supported:
        bench = PagedBench(subject, geometry, (37, 18, 50))
        bench.step((37 - 2, 0, 30))
        bench.step((1, 17, 19))
        bench.step((1, 1, 1))


def supports(subject: Subject, geometry: Geometry) -> bool:
    """Say whether the descriptor, and its `refine` if it has one, let a geometry pass."""
    return _verdict(subject, geometry).ok


def _verdict(subject: Subject, geometry: Geometry) -> Verdict:
    """Ask the descriptor, and its `refine` if it has one, as selection does."""
    spec = subject.spec(AttentionSpec)
    request = AttentionRequest(
        device_type=next(iter(sorted(spec.devices))) if subject.device not in spec.devices else subject.device,
        dtype=geometry.dtype,
        kv_dtype=geometry.kv_dtype,
        head_dim=geometry.head_dim,
        num_heads=geometry.heads,
        num_kv_heads=geometry.kv_heads,
        block_size=geometry.block_size,
        features=frozenset({"latent"} if geometry.latents_kept else ()),
        latents=geometry.latents_kept,
    )
    verdict = request.check(spec)
    if verdict.ok and spec.refine is not None:
        verdict = subject.load(spec.refine)(request, probe_of(subject))
    return verdict


def _need(subject: Subject, feature: str) -> None:
    if feature not in subject.spec(AttentionSpec).features:
        raise NotApplicable(f"it does not declare {feature}")


def _reference(subject: Subject) -> Subject:
    if subject.descriptor.maturity == "reference":
        raise NotApplicable("it is the reference")
    device_of(subject)
    for entry in subject.catalogue.entries(subject.entry.group):
        other = replace(subject, entry=entry)
        if other.descriptor.maturity == "reference" and subject.device in other.spec(AttentionSpec).devices:
            return other
    raise NotApplicable(f"no reference backend for {subject.device} is installed")


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


CHECKS = (
    *checks(
        prefill_matches_reference,
        decode_matches_reference,
        mixed_batch_matches_reference,
        chunked_prefill_equals_whole,
        grouped_heads_match_reference,
        head_dims_match_reference,
        block_sizes_match_reference,
        every_dtype_matches_reference,
        scales_are_applied,
        sliding_window_matches_reference,
        softcap_matches_reference,
        alibi_matches_reference,
        alibi_by_root_matches_reference,
        chunks_match_reference,
        sinks_match_reference,
        scattered_blocks_match_reference,
        unused_content_does_not_matter,
        very_different_lengths_match_reference,
        generated_batches_match_reference,
        one_plan_serves_every_layer,
        blocks_can_be_copied,
        writes_touch_only_their_blocks,
        leaves_its_inputs_alone,
        layout_holds_the_keys_and_values,
        on_device=True,
    ),
    *checks(faster_than_reference, level=Level.L3),
)
