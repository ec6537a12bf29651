"""Operations with recurrent states: token by token in float64, in pieces, on slots that hold anything."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api.states import State, StateRows
from core.ops import recurrent

SLOTS = 5
GEN = torch.Generator().manual_seed(3)


def normal(*shape):
    return torch.randn(*shape, generator=GEN, dtype=torch.float64)


def rows_of(lengths, slots, fresh):
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return StateRows(torch.tensor(slots), torch.tensor(fresh, dtype=torch.int64), starts)


class Unread(torch.Tensor):
    """Numbers that the host does not read."""

    def tolist(self):
        raise AssertionError("the host reads a tensor of the device")

    item = cpu = numpy = __bool__ = tolist


class Conv:
    channels, width = 6, 4
    shape = (channels, width - 1)

    def __init__(self):
        self.weight, self.bias = normal(self.channels, self.width), normal(self.channels)

    def arguments(self, tokens):
        return (normal(tokens, self.channels),)

    def op(self, given, state):
        return recurrent.causal_conv(given[0], self.weight, self.bias, state, True)

    def whole(self, given):
        x = torch.nn.functional.pad(given[0].T, (self.width - 1, 0))[None]
        out = torch.nn.functional.conv1d(x, self.weight[:, None], self.bias, groups=self.channels)[0].T
        return torch.nn.functional.silu(out)


class Linear:
    """The sum over all tokens before, written out; without the delta rule."""

    key_heads, heads, key_dim, value_dim = 2, 4, 3, 5
    shape = (heads, key_dim, value_dim)
    beta = False

    def arguments(self, tokens):
        q, k = normal(tokens, self.key_heads, self.key_dim), normal(tokens, self.key_heads, self.key_dim)
        decay = -normal(tokens, self.heads).abs()
        return q, k, normal(tokens, self.heads, self.value_dim), decay

    def op(self, given, state):
        return recurrent.linear_attention(*given, None, state, 0.5)

    def whole(self, given):
        q, k, v, decay = given
        q, k = (one.repeat_interleave(self.heads // self.key_heads, dim=1) for one in (q, k))
        until = decay.cumsum(0)
        gap = (until[:, None] - until[None]).exp()
        scores = torch.einsum("thk,shk->tsh", q, k) * gap * 0.5
        return torch.einsum("tsh,shv->thv", scores * torch.ones(len(q), len(q)).tril()[..., None], v)


class Delta(Linear):
    """Each token replaces what the matrix gives for its key by its value, as far as `beta` says."""

    def arguments(self, tokens):
        q, k, v, decay = super().arguments(tokens)
        by_key = decay[..., None] * torch.rand(tokens, self.heads, self.key_dim, generator=GEN, dtype=torch.float64)
        return q, k / k.norm(dim=-1, keepdim=True), v, by_key, torch.rand(tokens, self.heads, dtype=torch.float64)

    def op(self, given, state):
        return recurrent.linear_attention(*given[:4], given[4], state, 0.5)

    def whole(self, given):
        q, k, v, decay, beta = given
        q, k = (one.repeat_interleave(self.heads // self.key_heads, dim=1) for one in (q, k))
        out = torch.zeros_like(v)
        for head in range(self.heads):
            matrix = torch.zeros(self.key_dim, self.value_dim, dtype=torch.float64)
            for t in range(len(q)):
                key, strength = k[t, head], beta[t, head]
                matrix = torch.diag(decay[t, head].exp()) @ matrix
                # The rule of the papers: a reflection of what is there, and the new pair.
                matrix = (torch.eye(self.key_dim) - strength * torch.outer(key, key)) @ matrix
                matrix = matrix + strength * torch.outer(key, v[t, head])
                out[t, head] = 0.5 * q[t, head] @ matrix
        return out


class Scan:
    channels, state_dim = 4, 3
    shape = (channels, state_dim)

    def __init__(self):
        self.a = -normal(self.channels, self.state_dim).abs()

    def arguments(self, tokens):
        x, step = normal(tokens, self.channels), normal(tokens, self.channels).abs()
        return x, step, normal(tokens, self.state_dim), normal(tokens, self.state_dim)

    def op(self, given, state):
        x, step, b, c = given
        return recurrent.selective_scan(x, step, self.a, b, c, state)

    def whole(self, given):
        x, step, b, c = given
        until = step.cumsum(0)[..., None] * self.a
        added = (step * x)[..., None] * b[:, None]
        mask = torch.ones(len(x), len(x)).tril()[..., None, None]
        h = ((until[:, None] - until[None]).exp() * mask * added[None]).sum(1)
        return torch.einsum("tcn,tn->tc", h, c)


class Gated:
    channels = 5
    shape = (channels,)

    def arguments(self, tokens):
        return normal(tokens, self.channels), -normal(tokens, self.channels).abs()

    def op(self, given, state):
        return recurrent.gated_recurrence(*given, state)

    def whole(self, given):
        x, decay = given
        until = decay.cumsum(0)
        mask = torch.ones(len(x), len(x)).tril()[..., None]
        return ((until[:, None] - until[None]).exp() * mask * x[None]).sum(1)


KINDS = {kind.__name__: kind for kind in (Conv, Linear, Delta, Scan, Gated)}


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_pieces_of_several_rows_equal_the_whole(name, data):
    """Rows of any lengths run in any pieces beside each other, on slots that held NaN."""
    kind = KINDS[name]()
    count = data.draw(st.integers(1, 4))
    slots = data.draw(st.permutations(range(SLOTS)))[:count]
    totals = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    given = [kind.arguments(total) for total in totals]
    memory = torch.full((SLOTS, *kind.shape), float("nan"), dtype=torch.float64)
    done, found = [0] * count, [[] for _ in range(count)]
    while any(at < total for at, total in zip(done, totals, strict=True)):
        some = [i for i in range(count) if done[i] < totals[i] and data.draw(st.booleans())]
        some = some or [next(i for i in range(count) if done[i] < totals[i])]
        lengths = [data.draw(st.integers(1, totals[i] - done[i])) for i in some]
        rows = rows_of(lengths, [slots[i] for i in some], [int(done[i] == 0) for i in some])
        step = [
            torch.cat([given[i][part][done[i] : done[i] + length] for i, length in zip(some, lengths, strict=True)])
            for part in range(len(given[0]))
        ]
        out = kind.op(step, State(memory, rows))
        for i, length, piece in zip(some, lengths, out.split(lengths), strict=True):
            found[i].append(piece)
            done[i] += length
    for own, pieces in zip(given, found, strict=True):
        torch.testing.assert_close(torch.cat(pieces), kind.whole(own), atol=1e-9, rtol=1e-9)
    unused = [slot for slot in range(SLOTS) if slot not in slots]
    assert memory[unused].isnan().all(), "a slot of nobody was written"


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize("name", KINDS)
def test_rows_of_one_token_at_once_equal_the_whole(name):
    """As graphs run them: slots by index alone, in memory that stays, beside rows of padding."""
    kind, total, slots, nobodys = KINDS[name](), 6, [3, 0], SLOTS - 1
    given = [kind.arguments(total) for _ in slots]
    memory = torch.full((SLOTS, *kind.shape), float("nan"), dtype=torch.float64)
    rows = rows_of([1] * 4, [*slots, nobodys, nobodys], [1] * 4)
    held, fresh = (one.as_subclass(Unread) for one in (rows.slots, rows.fresh))
    rows = replace(rows, slots=held, fresh=fresh, twins=torch.from_numpy(rows.starts))
    padding = kind.arguments(2)
    found = []
    for t in range(total):
        step = [torch.cat([*(own[part][t : t + 1] for own in given), padding[part]]) for part in range(len(padding))]
        found.append(kind.op(step, State(memory, rows)).as_subclass(torch.Tensor))
        fresh[:2] = 0
    for place, own in enumerate(given):
        torch.testing.assert_close(torch.stack(found)[:, place], kind.whole(own), atol=1e-9, rtol=1e-9)
    assert memory[[1, 2]].isnan().all(), "a slot of nobody was written"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations_of_a_model_on_float32_states(dtype):
    kind = Linear()
    given = [one.to(dtype) for one in kind.arguments(30)]
    given[3] = given[3].float()
    memory = torch.full((SLOTS, *kind.shape), float("nan"))
    out = kind.op(given, State(memory, rows_of([30], [2], [1])))
    assert out.dtype is dtype and memory[2].isfinite().all()
    due = kind.whole([one.double() for one in given])
    torch.testing.assert_close(out.double(), due, atol=0.05, rtol=0.02 if dtype is torch.bfloat16 else 1e-4)
