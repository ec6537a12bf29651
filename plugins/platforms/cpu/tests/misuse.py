"""Calls that native kernels must not follow, one after the other: run by `test_native_misuse` in a process of its own.

Each prints one line when it is over, so that a crash is seen by the lines that are missing. What a kernel would have
written to is looked at afterwards.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.graphs import ProgramGraphs
from core_plugin_cpu.native import elementwise, experts, gemm, recurrent, sampling
from core_plugin_cpu.native.packed import Format

from core.api import RopeConfig
from core.api.attention import AttentionContext, AttentionSite, BatchView, LatentSite, PickSite
from core.api.experts import Routing
from core.api.states import State, StateRows
from core.ops import rotary_table

CPU = torch.device("cpu")
HEADS, KV_HEADS, DIM, BLOCK, BLOCKS, TOKENS = 4, 2, 16, 16, 6, 3
SITE = AttentionSite(3, HEADS, KV_HEADS, DIM, 0.25)
BACKEND = NativeAttentionBackend(AttentionContext(CPU, torch.float32, torch.float32, BLOCK))
LAYER, ENCODER = BACKEND.layer(SITE), BACKEND.encoder(SITE)
KV = torch.zeros(BLOCKS, *BACKEND.kv_layout(SITE).block_shape)
LATENT_SITE = LatentSite(4, HEADS, 2 * DIM, DIM, DIM, DIM, 0.25)
LATENT_LAYER = BACKEND.latent(LATENT_SITE)
LATENT_LAYER.use_up(torch.randn(HEADS, DIM, 2 * DIM), torch.randn(HEADS, 2 * DIM, DIM))
PICKED_LAYER = BACKEND.latent(replace(LATENT_SITE, picks=8))
PICKED_LAYER.use_up(torch.randn(HEADS, DIM, 2 * DIM), torch.randn(HEADS, 2 * DIM, DIM))
PICK_SITE = PickSite(5, HEADS, DIM, 0.25, picks=8)
PICKER = BACKEND.picker(PICK_SITE)
INDEX = torch.zeros(BLOCKS, *BACKEND.picker_layout(PICK_SITE).block_shape)
LATENTS = torch.zeros(BLOCKS, *BACKEND.latent_layout(LATENT_SITE).block_shape)
TABLE = rotary_table(RopeConfig(head_dim=DIM, rotary_dim=DIM), 40)
WEIGHT = gemm.pack(torch.randn(32, 64))
EXPERTS = 5
PACKED = experts.PackedExperts(Format.F32, 32, 64, torch.stack([WEIGHT.data] * EXPERTS))

Call = Callable[[], object]


def batch(**changes: object) -> BatchView:
    """Three rows that decode, each with 20 tokens in two blocks."""
    ramp = np.arange(TOKENS + 1, dtype=np.int32)
    table = torch.arange(2 * TOKENS, dtype=torch.int32).view(TOKENS, 2)
    whole = BatchView(ramp, np.full(TOKENS, 20, np.int32), table, torch.arange(TOKENS) * 32 + 19, 1, 20)
    return replace(whole, **changes)


def heads(tokens: int = TOKENS, count: int = HEADS, dim: int = DIM, **kind: object) -> torch.Tensor:
    return torch.randn(tokens, count, dim, dtype=torch.float32).to(**kind) if kind else torch.randn(tokens, count, dim)


def attend(q: object = None, view: BatchView | None = None, kv: torch.Tensor = KV) -> Call:
    return lambda: LAYER.forward(heads() if q is None else q, kv, BACKEND.plan(view or batch()))


def store(k: object = None, v: object = None, view: BatchView | None = None, kv: torch.Tensor = KV) -> Call:
    def call() -> None:
        keys, values = (heads(count=KV_HEADS) if one is None else one for one in (k, v))
        LAYER.write_kv(keys, values, kv, BACKEND.plan(view or batch()))

    return call


def attend_latents(
    q: object = None, rope: object = None, view: BatchView | None = None, kv: torch.Tensor = LATENTS
) -> Call:
    queries, rotated = (heads() if one is None else one for one in (q, rope))
    return lambda: LATENT_LAYER.forward(queries, rotated, kv, BACKEND.plan(view or batch()))


def store_latents(
    latent: object = None, rope: object = None, view: BatchView | None = None, kv: torch.Tensor = LATENTS
) -> Call:
    kept = torch.randn(TOKENS, 2 * DIM) if latent is None else latent
    rotated = torch.randn(TOKENS, DIM) if rope is None else rope
    return lambda: LATENT_LAYER.write(kept, rotated, kv, BACKEND.plan(view or batch()))


def attend_picked(
    picked: object = None, q: object = None, view: BatchView | None = None, kv: torch.Tensor = LATENTS
) -> Call:
    places = torch.arange(8, dtype=torch.int32).repeat(TOKENS, 1) if picked is None else picked
    queries = heads() if q is None else q
    return lambda: PICKED_LAYER.forward_picked(queries, heads(), kv, BACKEND.plan(view or batch()), places)


def pick(q: object = None, weights: object = None, view: BatchView | None = None, kv: torch.Tensor = INDEX) -> Call:
    queries = heads() if q is None else q
    factors = torch.rand(TOKENS, HEADS) if weights is None else weights
    return lambda: PICKER.forward(queries, factors, kv, BACKEND.plan(view or batch()))


def store_index(key: object = None, view: BatchView | None = None, kv: torch.Tensor = INDEX) -> Call:
    kept = torch.randn(TOKENS, DIM) if key is None else key
    return lambda: PICKER.write(kept, kv, BACKEND.plan(view or batch()))


def encode(q: object = None, k: object = None, view: BatchView | None = None) -> Call:
    def call() -> object:
        keys = heads(count=KV_HEADS)
        return ENCODER.forward(
            heads() if q is None else q, keys if k is None else k, keys, BACKEND.plan(view or batch())
        )

    return call


def rotate(positions: object = None, q: object = None, k: object = None, table: torch.Tensor = TABLE) -> Call:
    def call() -> object:
        places = torch.arange(TOKENS) if positions is None else positions
        keys = heads(count=KV_HEADS) if k is None else k
        return elementwise.rotary(places, heads() if q is None else q, keys, table)

    return call


def flawed_attention() -> Iterator[tuple[str, Call]]:
    """Yield misuse of paged, latent and encoder attention."""
    shapes = {
        "too few rows": heads(TOKENS - 1),
        "too many rows": heads(TOKENS + 2),
        "wrong head count": heads(count=HEADS + 1),
        "wrong head size": heads(dim=DIM * 2),
        "wrong dtype": heads(dtype=torch.float16),
        "other dtype": heads(dtype=torch.bfloat16),
        "wrong device": torch.empty(TOKENS, HEADS, DIM, device="meta"),
        "two dimensions": torch.randn(TOKENS, HEADS * DIM),
    }
    for name, q in shapes.items():
        yield f"attend: {name}", attend(q)
        yield f"encode: {name}", encode(q)
        yield f"attend latents: {name}", attend_latents(q)
        yield f"attend latents: rotated, {name}", attend_latents(rope=q)
        yield f"attend picked: {name}", attend_picked(q=q)
        yield f"pick: {name}", pick(q)
    keys = {
        "too few rows": heads(TOKENS - 1, KV_HEADS),
        "too many rows": heads(TOKENS + 2, KV_HEADS),
        "wrong head count": heads(count=KV_HEADS + 1),
        "wrong head size": heads(count=KV_HEADS, dim=DIM // 2),
        "wrong dtype": heads(count=KV_HEADS, dtype=torch.bfloat16),
        "wrong device": torch.empty(TOKENS, KV_HEADS, DIM, device="meta"),
    }
    for name, k in keys.items():
        yield f"store: keys, {name}", store(k)
        yield f"store: values, {name}", store(v=k)
        yield f"encode: keys, {name}", encode(k=k)
        yield f"store latents: {name}", store_latents(k.flatten(1))
        if "head count" not in name:
            yield f"store latents: rotated, {name}", store_latents(rope=k[:, 0])
            yield f"store index keys: {name}", store_index(k[:, 0])
    steps = {
        "block out of range": batch(block_tables=torch.tensor([[0, 1], [2, BLOCKS], [4, 5]], dtype=torch.int32)),
        "negative block": batch(block_tables=torch.tensor([[0, 1], [2, -1], [4, 5]], dtype=torch.int32)),
        "narrow block table": batch(block_tables=torch.zeros(TOKENS, 1, dtype=torch.int32)),
        "short block table": batch(block_tables=torch.zeros(TOKENS - 1, 2, dtype=torch.int32)),
        "block table of another dtype": batch(block_tables=torch.zeros(TOKENS, 2, dtype=torch.int64)),
        "slot out of range": batch(slots=torch.tensor([3, BLOCKS * BLOCK, 5])),
        "negative slot": batch(slots=torch.tensor([3, -1, 5])),
        "slots of another dtype": batch(slots=torch.zeros(TOKENS, dtype=torch.int32)),
        "too few slots": batch(slots=torch.zeros(TOKENS - 1, dtype=torch.int64)),
        "too many slots": batch(slots=torch.zeros(TOKENS + 1, dtype=torch.int64)),
        "offsets that fall": batch(query_starts=np.array([0, 2, 1, 3], np.int32)),
        "offsets beyond the tokens": batch(query_starts=np.array([0, 1, 2, 900], np.int32)),
        "too few offsets": batch(query_starts=np.arange(TOKENS, dtype=np.int32)),
        "more queries than tokens": batch(seq_lens=np.zeros(TOKENS, np.int32)),
    }
    for name, view in steps.items():
        yield f"attend: {name}", attend(view=view)
        yield f"store: {name}", store(view=view)
        yield f"attend latents: {name}", attend_latents(view=view)
        yield f"store latents: {name}", store_latents(view=view)
        yield f"attend picked: {name}", attend_picked(view=view)
        yield f"pick: {name}", pick(view=view)
        yield f"store index keys: {name}", store_index(view=view)
        if "offsets" in name:
            yield f"encode: {name}", encode(view=view)
    yield "attend: cache of another layout", attend(kv=torch.zeros(BLOCKS, 2, KV_HEADS, BLOCK))
    yield "store: cache of another layout", store(kv=torch.zeros(BLOCKS, 2, KV_HEADS, BLOCK))
    yield "attend latents: cache of another layout", attend_latents(kv=LATENTS[..., :DIM])
    yield "store latents: cache of another layout", store_latents(kv=LATENTS[..., :DIM])
    right = torch.arange(8, dtype=torch.int32).repeat(TOKENS, 1)
    picked = {
        "of fewer tokens": right[:-1],
        "of another number": right[:, :-1],
        "of another dtype": right.long(),
        "apart": right.repeat(1, 2)[:, ::2],
        "behind the token": right.index_fill(0, torch.tensor([1]), 20),
        "below none": right.index_fill(1, torch.tensor([3]), -2),
    }
    for name, places in picked.items():
        yield f"attend picked: positions {name}", attend_picked(places)
    yield "attend picked: cache of another layout", attend_picked(kv=LATENTS[..., :DIM])
    yield "pick: cache of another layout", pick(kv=INDEX[..., :8])
    yield "pick: weights of fewer tokens", pick(weights=torch.rand(TOKENS - 1, HEADS))
    yield "pick: weights of another dtype", pick(weights=torch.rand(TOKENS, HEADS).double())
    yield "store index keys: cache of another layout", store_index(kv=INDEX[..., :8])
    yield "use_up: keys of other heads", lambda: LATENT_LAYER.use_up(heads(HEADS + 1), heads(HEADS, 2 * DIM, DIM))
    yield "use_up: values of another size", lambda: LATENT_LAYER.use_up(heads(HEADS, DIM, 2 * DIM), heads(HEADS, DIM))
    yield "layer: heads that are no groups", lambda: BACKEND.layer(replace(SITE, num_kv_heads=3))
    yield "layer: heads too large", lambda: BACKEND.layer(replace(SITE, head_dim=512))
    yield "encoder: heads too large", lambda: BACKEND.encoder(replace(SITE, head_dim=512))


def flawed_operations() -> Iterator[tuple[str, Call]]:
    """Yield misuse of norms, activations, rotary embeddings and lookups."""
    x, half, meta = torch.randn(3, 64), torch.randn(3, 64).half(), torch.empty(3, 64, device="meta")
    weights = {"short": torch.rand(63), "wide": torch.rand(65), "of another dtype": torch.rand(64).bfloat16()}
    for name, weight in weights.items():
        yield f"rms_norm: weights {name}", lambda weight=weight: elementwise.rms_norm(x, weight, 1e-5)
        yield f"layer_norm: weights {name}", lambda weight=weight: elementwise.layer_norm(x, weight, None, 1e-5)
        yield f"layer_norm: bias {name}", lambda weight=weight: elementwise.layer_norm(x, torch.rand(64), weight, 1e-5)
    for name, wrong in {"float16": half, "meta": meta}.items():
        yield f"rms_norm: {name}", lambda wrong=wrong: elementwise.rms_norm(wrong, torch.rand(64), 1e-5)
        yield f"layer_norm: {name}", lambda wrong=wrong: elementwise.layer_norm(wrong, torch.rand(64), None, 1e-5)
        yield f"gelu: {name}", lambda wrong=wrong: elementwise.activate(wrong, "gelu")
        yield f"silu_and_mul: {name}", lambda wrong=wrong: elementwise.gated(wrong, "silu")
        yield f"linear: {name}", lambda wrong=wrong: gemm.linear(wrong, WEIGHT)
    for name, residual in {"narrow": torch.randn(3, 32), "short": torch.randn(2, 64), "float16": half}.items():
        yield f"add_rms_norm: residual {name}", lambda r=residual: elementwise.add_rms_norm(x, r, torch.rand(64), 1e-5)
        yield (
            f"add_layer_norm: residual {name}",
            lambda r=residual: elementwise.add_layer_norm(x, r, torch.rand(64), None, 1e-5),
        )
    yield "silu_and_mul: odd width", lambda: elementwise.gated(torch.randn(3, 7), "silu")
    yield "rotary: position out of range", rotate(torch.tensor([0, 40, 1]))
    yield "rotary: negative position", rotate(torch.tensor([0, -1, 1]))
    yield "rotary: positions of another dtype", rotate(torch.zeros(TOKENS, dtype=torch.int32))
    yield "rotary: too few positions", rotate(torch.zeros(TOKENS - 1, dtype=torch.int64))
    yield "rotary: too few keys", rotate(k=heads(TOKENS - 1, KV_HEADS))
    yield "rotary: keys of another size", rotate(k=heads(count=KV_HEADS, dim=8))
    yield "rotary: small heads", rotate(q=heads(dim=8), k=heads(count=KV_HEADS, dim=8))
    yield "lookup: id out of range", lambda: gemm.lookup(WEIGHT, torch.tensor([0, 32]), torch.float32)
    yield "lookup: negative id", lambda: gemm.lookup(WEIGHT, torch.tensor([-1]), torch.float32)
    yield "lookup: ids of another dtype", lambda: gemm.lookup(WEIGHT, torch.zeros(2, dtype=torch.int32), torch.float32)
    yield "gather: id out of range", lambda: elementwise.gather(x, torch.tensor([3]))


def flawed_products() -> Iterator[tuple[str, Call]]:
    """Yield misuse of products and of sampling."""
    x, y = torch.randn(3, 64), torch.empty(3, 32)
    short = replace(WEIGHT, data=WEIGHT.data[:-64])
    yield "linear: wrong width", lambda: gemm.linear(torch.randn(3, 65), WEIGHT)
    yield "linear: weight too short", lambda: gemm.linear(x, short)
    yield "linear: weight says more rows", lambda: gemm.linear(x, replace(WEIGHT, n=64))
    yield "linear: bias too short", lambda: gemm.linear(x, WEIGHT, torch.zeros(31))
    yield "linear: order too short", lambda: gemm.linear(x, replace(WEIGHT, order=torch.zeros(63, dtype=torch.int32)))
    yield "linear: place too small", lambda: gemm.apply(x, WEIGHT, None, y[:2])
    logits, numbers = torch.randn(3, 50), torch.ones(5, 3, dtype=torch.float64)
    draw = sampling.draw
    yield "argmax: one dimension", lambda: sampling.argmax(logits[0])
    yield "draw: numbers for fewer rows", lambda: draw(logits, None, numbers[:, :2], truncated=False)
    yield "draw: numbers of four kinds", lambda: draw(logits, None, numbers[:4], truncated=False)
    yield "draw: numbers of another dtype", lambda: draw(logits, None, numbers.float(), truncated=False)
    yield "draw: row out of range", lambda: draw(logits, torch.tensor([0, 3, 1]), numbers, truncated=False)


def choose(logits: object = None, correction: object = None, **settings: object) -> Call:
    scores = torch.randn(TOKENS, 12) if logits is None else logits
    return lambda: experts.route(scores, correction, Routing(**{"top_k": 2, **settings}))


def identities(out: object = None, weights: object = None, ids: object = None) -> Call:
    given, x = torch.randn(TOKENS, 64) if out is None else out, torch.randn(TOKENS, 64)
    scales = torch.ones(TOKENS, 2) if weights is None else weights
    numbers = torch.zeros(TOKENS, 2, dtype=torch.int32) if ids is None else ids
    return lambda: experts.add_identities(given, x, scales, numbers, 1)


def widen(x: object = None, ids: object = None, weight: object = PACKED, bias: object = None, y: object = None) -> Call:
    def call() -> None:
        numbers = torch.zeros(TOKENS, 2, dtype=torch.int32) if ids is None else ids
        place = torch.empty(TOKENS * 2, 32) if y is None else y
        experts.experts_in(torch.randn(TOKENS, 64) if x is None else x, numbers, weight, bias, place)

    return call


def narrow(x: object = None, weights: object = None, ids: object = None, y: object = None) -> Call:
    def call() -> None:
        numbers = torch.zeros(TOKENS, 2, dtype=torch.int32) if ids is None else ids
        scales, place = torch.ones(TOKENS, 2) if weights is None else weights, torch.empty(TOKENS, 32)
        rows = torch.randn(TOKENS * 2, 64) if x is None else x
        experts.experts_out(rows, scales, numbers, PACKED, None, place if y is None else y)

    return call


def flawed_mixtures() -> Iterator[tuple[str, Call]]:
    """Yield misuse of routing and of products with the weights of experts."""
    yield "route: more than there are", choose(top_k=13)
    yield "route: more than there is room for", choose(torch.randn(2, 2049))
    yield "route: groups of unequal sizes", choose(groups=5)
    yield "route: groups of one by two", choose(groups=12, group_by="top2")
    yield "route: numbers", choose(torch.zeros(TOKENS, 12, dtype=torch.int64))
    yield "route: biases of fewer", choose(correction=torch.zeros(11))
    ids = torch.zeros(TOKENS, 2, dtype=torch.int32)
    for name, wrong in {
        "of another dtype": ids.long(),
        "of fewer tokens": ids[:-1].contiguous(),
        "in columns": ids.t().contiguous().t(),
        "in one dimension": ids.flatten(),
    }.items():
        yield f"experts_in: ids {name}", widen(ids=wrong)
        yield f"experts_out: ids {name}", narrow(ids=wrong)
        yield f"add_identities: ids {name}", identities(ids=wrong)
    yield "add_identities: fewer rows", identities(torch.randn(TOKENS - 1, 64))
    yield "add_identities: another width", identities(torch.randn(TOKENS, 65))
    yield "add_identities: another dtype", identities(torch.randn(TOKENS, 64).bfloat16())
    yield "add_identities: weights of fewer", identities(weights=torch.ones(TOKENS, 1))
    yield "experts_in: wrong width", widen(torch.randn(TOKENS, 65))
    yield "experts_in: float16", widen(torch.randn(TOKENS, 64).half())
    yield "experts_in: weights too short", widen(weight=replace(PACKED, data=PACKED.data[:, :-64]))
    yield "experts_in: weights of one", widen(weight=replace(PACKED, data=WEIGHT.data))
    yield "experts_in: weights say more outputs", widen(weight=replace(PACKED, n=64), y=torch.empty(TOKENS * 2, 64))
    yield "experts_in: bias of one", widen(bias=torch.zeros(32))
    yield "experts_in: bias of fewer experts", widen(bias=torch.zeros(EXPERTS - 1, 32))
    yield "experts_in: bias of another dtype", widen(bias=torch.zeros(EXPERTS, 32).bfloat16())
    yield "experts_in: place too small", widen(y=torch.empty(TOKENS, 32))
    yield "experts_in: place in columns", widen(y=torch.empty(32, TOKENS * 2).t())
    yield "experts_out: rows of fewer", narrow(torch.randn(TOKENS, 64))
    yield "experts_out: weights of fewer", narrow(weights=torch.ones(TOKENS, 1))
    yield "experts_out: weights of another dtype", narrow(weights=torch.ones(TOKENS, 2).bfloat16())
    yield "experts_out: place of another size", narrow(y=torch.empty(TOKENS, 48))


def recur(**rows: object) -> Call:
    """A decaying sum of three rows, in memory for four."""
    given = {"slots": torch.tensor([3, 0, 1]), "fresh": torch.zeros(3, dtype=torch.int64), **rows}
    starts = given.pop("starts", np.arange(TOKENS + 1, dtype=np.int32))
    state = State(torch.zeros(4, 8), StateRows(given["slots"], given["fresh"], starts))
    return lambda: recurrent.gated_recurrence(torch.randn(TOKENS, 8), torch.zeros(TOKENS, 8), state)


def flawed_recurrences() -> Iterator[tuple[str, Call]]:
    """Yield rows with states that are none of the step's."""
    yield "recurrence: slot out of range", recur(slots=torch.tensor([3, 4, 1]))
    yield "recurrence: negative slot", recur(slots=torch.tensor([3, -1, 1]))
    yield "recurrence: slots of another dtype", recur(slots=torch.tensor([3, 0, 1], dtype=torch.int32))
    yield "recurrence: fewer slots", recur(slots=torch.tensor([3, 0]))
    yield "recurrence: offsets beyond the tokens", recur(starts=np.array([0, 1, 2, 4], np.int32))
    yield "recurrence: offsets that fall", recur(starts=np.array([0, 2, 1, 3], np.int32))
    yield "recurrence: offsets of another dtype", recur(starts=np.arange(TOKENS + 1))


class Step:
    """A step of three rows that decode, as the graph facet sees one."""

    states = None

    def __init__(self, view: BatchView, **changes: torch.Tensor) -> None:
        given = {"token_ids": torch.arange(TOKENS), "positions": torch.full((TOKENS,), 19), **changes}
        self.token_ids, self.positions, self.plans = given["token_ids"], given["positions"], [BACKEND.plan(view)]


EMBEDDING = torch.randn(50, (HEADS + 2 * KV_HEADS) * DIM)


def forward(step: Step, rows: slice = slice(None), shift: int = 0) -> torch.Tensor:
    """Embed, rotate, store and attend."""
    embedded = elementwise.gather(EMBEDDING, step.token_ids).view(-1, HEADS + 2 * KV_HEADS, DIM)
    q, k, v = embedded[rows].split_with_sizes([HEADS, KV_HEADS, KV_HEADS], dim=1)
    places = step.positions + shift if shift else step.positions
    q, k = elementwise.rotary(places[rows], q, k, TABLE)
    LAYER.write_kv(k, v, KV, step.plans[0])
    return LAYER.forward(q, KV, step.plans[0])


def replayed(step: Callable[[], Step], shift: int = 0) -> Call:
    def call() -> object:
        graph = ProgramGraphs().capture(lambda inputs: forward(inputs, shift=shift), Step(batch()))
        KV[0] = 0.0  # the null block, where recording may write
        return graph.replay(step())

    return call


def partial() -> object:
    """Normalise every second row only: replayed for fewer tokens it would read what is left of earlier steps."""
    facet = ProgramGraphs()
    facet.capture(lambda step: elementwise.gather(EMBEDDING, step.token_ids[: len(step.token_ids) // 2]), Step(batch()))
    raise ValueError(facet.refused)


def flawed_programs() -> Iterator[tuple[str, Call]]:
    """Yield misuse while a program is recorded, and steps that a program must not run."""
    captured = ProgramGraphs().capture
    yield (
        "record: too few rows",
        lambda: captured(lambda step: forward(step, slice(0, len(step.token_ids) - 1)), Step(batch())),
    )
    yield "record: result of other rows", lambda: captured(lambda step: forward(step)[:-1], Step(batch()))
    yield "record: some of the rows", partial
    yield "replay: token id out of range", replayed(lambda: Step(batch(), token_ids=torch.tensor([0, 50, 1])))
    yield "replay: position out of range", replayed(lambda: Step(batch(), positions=torch.tensor([0, 40, 1])))
    yield "replay: shifted position out of range", replayed(lambda: Step(batch()), shift=21)
    yield "replay: slot out of range", replayed(lambda: Step(batch(slots=torch.tensor([0, BLOCKS * BLOCK, 1]))))
    yield (
        "replay: block out of range",
        replayed(lambda: Step(batch(block_tables=torch.full((TOKENS, 2), BLOCKS, dtype=torch.int32)))),
    )
    yield "replay: narrow block table", replayed(lambda: Step(batch(block_tables=torch.zeros(3, 1, dtype=torch.int32))))
    yield "replay: fewer token ids", replayed(lambda: Step(batch(), token_ids=torch.arange(TOKENS - 1)))


def cases() -> Iterator[tuple[str, Call]]:
    """Yield every misuse with its name."""
    for part in (
        flawed_attention,
        flawed_operations,
        flawed_products,
        flawed_mixtures,
        flawed_recurrences,
        flawed_programs,
    ):
        yield from part()


def outcome(call: Call) -> str:
    """Return what a call raises, or an empty text."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    """Try every misuse, then what is right."""
    torch.set_num_threads(1)
    with torch.inference_mode():
        before = KV.clone(), LATENTS.clone(), INDEX.clone()
        for name, call in cases():
            said = outcome(call)
            print(json.dumps([name, said, all(map(torch.equal, (KV, LATENTS, INDEX), before))]), flush=True)
        mixtures = [
            choose(),
            identities(),
            widen(),
            narrow(),
            widen(ids=torch.full((TOKENS, 2), EXPERTS, dtype=torch.int32)),
        ]
        fits = [
            attend(),
            store(),
            attend_latents(),
            store_latents(),
            attend_picked(),
            pick(),
            store_index(),
            encode(),
            rotate(),
            recur(),
            *mixtures,
            replayed(lambda: Step(batch())),
        ]
        print(json.dumps(["what is right", " ".join(map(outcome, fits)), True]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
