"""Recurrences against their forms in torch with float64, at every instruction set of this machine."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.graphs import ProgramGraphs
from core_plugin_cpu.native import elementwise, library, recurrent

from core.api.attention import AttentionContext, AttentionSite, BatchView
from core.api.states import State, StateRows
from core.ops import recurrent as forms

F32, BF16 = torch.float32, torch.bfloat16
DTYPES = (F32, BF16)
MIXED = [1, 3, 0, 9, 1]
"""Tokens of the rows of a step: some decode, others are prompts."""
STEPS = ([1], [1, 1, 1], MIXED, [2, 7])


def state_of(lengths, shape, dtype=F32):
    """Slots in any order, every second row begins; whatever is nobody's state holds NaN."""
    count = len(lengths)
    slots, fresh = torch.randperm(count + 3)[:count], torch.arange(1, count + 1) % 2
    memory = torch.full((count + 3, *shape), float("nan"), dtype=dtype)
    memory[slots[fresh == 0]] = torch.randn(int((fresh == 0).sum()), *shape).to(dtype)
    return State(memory, StateRows(slots, fresh, np.cumsum([0, *lengths], dtype=np.int32)))


def wide(one):
    if isinstance(one, State):
        return State(one.memory.double(), one.rows)
    return one.double() if isinstance(one, torch.Tensor) else one


def compare(name, arguments, dtype):
    """`arguments` hold one state, which is to be what the form in float64 leaves, and NaN where it leaves that."""
    state = next(one for one in arguments if isinstance(one, State))
    exact = [wide(one) for one in arguments]
    wanted = getattr(forms, name)(*exact)
    left = next(one for one in exact if isinstance(one, State)).memory
    got = getattr(recurrent, name)(*arguments)
    assert got.dtype == dtype
    of = {F32: {"rtol": 1e-4, "atol": 2e-5}, BF16: {"rtol": 2**-7, "atol": 2e-5}}
    torch.testing.assert_close(got.double(), wanted, **of[dtype])
    assert state.memory.isnan().any()
    torch.testing.assert_close(state.memory.double(), left, **of[state.memory.dtype], equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("held", [F32, None])
def test_causal_conv(isa, dtype, held):
    for number, (channels, width) in enumerate(((1, 2), (37, 3), (64, 4), (150, 5), (80, 16))):
        for lengths in (MIXED, STEPS[number % 4]):
            x, weight = torch.randn(sum(lengths), channels).to(dtype), torch.randn(channels, width).to(dtype)
            bias = torch.randn(channels).to(dtype) if width % 2 else None
            state = state_of(lengths, (channels, width - 1), held or dtype)
            compare("causal_conv", (x, weight, bias, state, width > 3), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("per_key", [True, False])
def test_linear_attention(isa, dtype, delta, per_key):
    for number, geometry in enumerate(((1, 1, 16, 16), (2, 3, 33, 40), (2, 2, 64, 128), (1, 2, 256, 200))):
        key_heads, group, key_dim, value_dim = geometry
        for lengths in (MIXED, STEPS[number]):
            tokens, heads = sum(lengths), key_heads * group
            q, k = torch.randn(2, tokens, key_heads, key_dim)
            k = torch.nn.functional.normalize(k, dim=-1)
            v = torch.randn(tokens, heads, value_dim)
            decay = -torch.rand(tokens, heads, key_dim) if per_key else -torch.rand(tokens, heads)
            beta = torch.rand(tokens, heads) if delta else None
            state = state_of(lengths, (heads, key_dim, value_dim))
            arguments = (q.to(dtype), k.to(dtype), v.to(dtype), decay, beta, state, key_dim**-0.5)
            compare("linear_attention", arguments, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_selective_scan(isa, dtype):
    for number, (channels, size) in enumerate(((1, 16), (45, 16), (32, 7), (70, 64), (33, 256))):
        for lengths in (MIXED, STEPS[number % 4]):
            x, (b, c) = torch.randn(sum(lengths), channels).to(dtype), torch.randn(2, sum(lengths), size).to(dtype)
            step, a = torch.rand(sum(lengths), channels), -torch.rand(channels, size) * 4
            compare("selective_scan", (x, step, a, b, c, state_of(lengths, (channels, size))), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gated_recurrence(isa, dtype):
    for lengths in STEPS:
        for channels in (1, 31, 128, 300):
            x, decay = torch.randn(sum(lengths), channels).to(dtype), -torch.rand(sum(lengths), channels)
            compare("gated_recurrence", (x, decay, state_of(lengths, (channels,))), dtype)


def test_long_prompts(isa):
    lengths = [200, 1, 150]
    q, k = torch.nn.functional.normalize(torch.randn(2, 351, 1, 128), dim=-1)
    v, decay, beta = torch.randn(351, 2, 128), -torch.rand(351, 2), torch.rand(351, 2)
    compare("linear_attention", (q, k, v, decay, beta, state_of(lengths, (2, 128, 128)), 1.0), F32)
    x = torch.randn(351, 40)
    compare("causal_conv", (x, torch.randn(40, 4), None, state_of(lengths, (40, 3)), True), F32)


def near(got, wanted):
    """Whether two tensors differ by 1e-5 of the largest number at most, and are NaN at the same places."""
    assert torch.equal(got.isnan(), wanted.isnan())
    got, wanted = got.double().nan_to_num(), wanted.double().nan_to_num()
    worst = float((got - wanted).abs().max() / wanted.abs().max())
    assert worst < 1e-5, worst


def prompt(lengths, geometry, decay, delta, alike=0.0):
    """Return arguments of `linear_attention`; keys are the same but for a part of `1 - alike`."""
    key_heads, group, key_dim, value_dim = geometry
    tokens, heads = sum(lengths), key_heads * group
    q, k = torch.randn(2, tokens, key_heads, key_dim)
    k = torch.nn.functional.normalize(alike * k[:1] + (1 - alike) * k, dim=-1)
    v, beta = torch.randn(tokens, heads, value_dim), torch.rand(tokens, heads) if delta else None
    return q, k, v, decay, beta, state_of(lengths, (heads, key_dim, value_dim)), key_dim**-0.5


def check_prompt(arguments):
    exact = [wide(one) for one in arguments]
    wanted = forms.linear_attention(*exact)
    near(recurrent.linear_attention(*arguments), wanted)
    near(arguments[5].memory, exact[5].memory)


BORDERS = [[7, 8, 9], [15, 16, 17, 1], [32, 0, 33], [23, 24, 25, 3], [127, 128, 129]]
"""Tokens of rows that end at, before and behind where chunks and pieces of them do."""


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("per_key", [True, False])
def test_prompts_in_chunks_end_anywhere(isa, delta, per_key):
    for lengths, geometry in zip(
        BORDERS, ((2, 2, 32, 40), (1, 3, 64, 64), (3, 1, 33, 17), (1, 5, 16, 200), (1, 1, 256, 130))
    ):
        shape = (sum(lengths), geometry[0] * geometry[1], *([geometry[2]] if per_key else []))
        check_prompt(prompt(lengths, geometry, -torch.rand(shape) * torch.rand(shape[1:]) * 3, delta))


@pytest.mark.parametrize("per_key", [True, False])
def test_chunks_whatever_decays(isa, per_key):
    """Nothing, all at once, so fast that products of it leave float32: no exponent is ever positive."""
    speeds = torch.tensor([0.0, -1e-4, -0.3, -6.0, -40.0, -100.0, -1e4, -float("inf")])
    lengths = [50, 70]
    for chosen in (speeds, speeds[[0, 1]], speeds[[0, 3]], speeds[[4, 5]]):
        decay = chosen[torch.randint(len(chosen), (120, 4, *([32] if per_key else [])))]
        check_prompt(prompt(lengths, (2, 2, 32, 48), decay, delta=True))
        check_prompt(prompt(lengths, (2, 2, 32, 48), decay, delta=False))


@pytest.mark.parametrize("per_key", [True, False])
def test_keys_that_are_alike_in_chunks(isa, per_key):
    """Each correction then depends on all before it."""
    decay = torch.zeros(90, 2, *([32] if per_key else []))
    for alike in (0.9, 1.0):
        check_prompt(prompt([90], (1, 2, 32, 64), decay, delta=True, alike=alike))


def test_prompts_of_several_pieces(isa):
    lengths, geometry = [300, 5, 1], (1, 2, 128, 128)
    check_prompt(prompt(lengths, geometry, -torch.rand(306, 2) / 8, delta=True))
    check_prompt(prompt(lengths, geometry, -torch.rand(306, 2, 128) / 8, delta=True))
    x, (b, c) = torch.randn(306, 40), torch.randn(2, 306, 16)
    scanned = (x, torch.rand(306, 40) / 8, -torch.rand(40, 16) * 4, b, c, state_of(lengths, (40, 16)))
    compare("selective_scan", scanned, F32)
    compare("gated_recurrence", (x, -torch.rand(306, 40) / 8, state_of(lengths, (40,))), F32)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_heads_of_prompts_are_shared_by_threads(isa, threads):
    """Also where a thread gets some heads of a row only, or some columns."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for lengths, geometry in (([40, 9], (1, 8, 64, 64)), ([100], (3, 2, 32, 300)), ([20, 1, 1], (1, 1, 128, 512))):
            decay = -torch.rand(sum(lengths), geometry[0] * geometry[1])
            check_prompt(prompt(lengths, geometry, decay, delta=True))
    finally:
        torch.set_num_threads(before)


def test_what_decays_at_once_and_never(isa):
    """Decays of 0, and of so much that nothing is left."""
    lengths, decay = [3, 4], torch.tensor([0.0, -1e4, -80.0, 0.0, -1e-6, -200.0, 0.0])
    x = torch.randn(7, 40)
    compare("gated_recurrence", (x, decay[:, None].expand(7, 40).contiguous(), state_of(lengths, (40,))), F32)
    q, k, v = torch.randn(3, 7, 2, 16)
    state = state_of(lengths, (2, 16, 16))
    compare("linear_attention", (q, k, v, decay[:, None].expand(7, 2).contiguous(), None, state, 1.0), F32)


def test_tokens_may_lie_apart(isa):
    """As they do in what one projection gives: q, k and v, b and c are parts of it."""
    lengths = [5, 1, 2]
    joint, more = torch.randn(8, 2 * 64 + 4 * 48).to(BF16), -torch.rand(8, 40)
    q, k, v = joint.split([64, 64, 192], dim=-1)
    state = state_of(lengths, (4, 32, 48))
    arguments = (q.view(8, 2, 32), k.view(8, 2, 32), v.view(8, 4, 48), more[:, 3:7], -more[:, 7:11], state, 0.1)
    compare("linear_attention", arguments, BF16)
    compare("gated_recurrence", (joint[:, 7:27], more[:, 11:31], state_of(lengths, (20,))), BF16)
    state = state_of(lengths, (20, 16))
    a = -torch.rand(20, 16)
    compare("selective_scan", (joint[:, :20], -more[:, :20], a, joint[:, 30:46], joint[:, 50:66], state), BF16)
    compare("causal_conv", (joint[:, 5:105], torch.randn(100, 4), None, state_of(lengths, (100, 3)), True), BF16)


def test_tokens_in_one_step_or_in_several_leave_the_same(isa):
    x, decay, memory = torch.randn(90, 70), -torch.rand(90, 70), torch.randn(2, 70)
    weight, past = torch.randn(70, 4), torch.randn(2, 70, 3)
    k, v = torch.nn.functional.normalize(torch.randn(90, 2, 32), dim=-1), torch.randn(90, 4, 50)
    beta, matrix = torch.rand(90, 4), torch.randn(2, 4, 32, 50)

    def made(begin, end, held, line, square):
        rows = StateRows(torch.tensor([1]), torch.tensor([0]), np.array([0, end - begin], np.int32))
        part = slice(begin, end)
        return (
            recurrent.gated_recurrence(x[part], decay[part], State(held, rows)),
            recurrent.causal_conv(x[part], weight, None, State(line, rows), True),
            recurrent.linear_attention(
                k[part], k[part], v[part], decay[part, :4], beta[part], State(square, rows), 1.0
            ),
        )

    whole, parts = ([one.clone() for one in (memory, past, matrix)] for _ in range(2))
    due = made(0, 90, *whole)
    pieces = [made(begin, end, *parts) for begin, end in ((0, 1), (1, 2), (2, 50), (50, 52), (52, 90))]
    for wanted, *got in zip(due, *pieces):
        torch.testing.assert_close(torch.cat(got), wanted, rtol=1e-5, atol=1e-5)
    for got, wanted in zip(parts, whole):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_rows_are_shared_by_threads(isa):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        lengths = [1] * 15 + [20]
        q, k = torch.nn.functional.normalize(torch.randn(2, 35, 4, 64), dim=-1)
        v, decay, beta = torch.randn(35, 8, 64), -torch.rand(35, 8), torch.rand(35, 8)
        compare("linear_attention", (q, k, v, decay, beta, state_of(lengths, (8, 64, 64)), 1.0), F32)
        x = torch.randn(35, 3000)
        compare("causal_conv", (x, torch.randn(3000, 4), None, state_of(lengths, (3000, 3)), True), F32)
    finally:
        torch.set_num_threads(before)


def gated(x=None, decay=None, state=None, **rows):
    state = state or state_of([1, 2], (8,))
    given = {"slots": state.rows.slots, "fresh": state.rows.fresh, "starts": state.rows.starts} | rows
    x = torch.randn(3, 8) if x is None else x
    return recurrent.gated_recurrence(x, -x.abs() if decay is None else decay, State(state.memory, StateRows(**given)))


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (partial(gated, slots=torch.tensor([0, 5])), IndexError, "slots of states: number 1 of 2 is 5, outside 0 to 4"),
        (partial(gated, slots=torch.tensor([-1, 2])), IndexError, "number 0 of 2 is -1"),
        (partial(gated, starts=np.array([0, 1, 4], np.int32)), IndexError, r"\[1, 3\] tokens, which are not its 3"),
        (partial(gated, starts=np.array([0, 4, 3], np.int32)), IndexError, r"\[4, -1\] tokens"),
        (partial(gated, starts=np.array([0, 3], np.int32)), ValueError, "2 rows have"),
        (partial(gated, fresh=torch.tensor([True, False])), ValueError, "fresh"),
        (partial(gated, decay=torch.zeros(3, 8, dtype=BF16)), ValueError, "float32"),
        (partial(gated, x=torch.randn(3, 8).half()), ValueError, "float32 or bfloat16"),
        (partial(gated, state=state_of([1, 2], (9,))), ValueError, r"a slot of \(8,\)"),
        (partial(gated, state=state_of([1, 2], (8,), BF16)), ValueError, "memory"),
    ],
)
def test_what_does_not_fit_is_refused(isa, call, error, told):
    with pytest.raises(error, match=told):
        call()


HEADS, DIM, BLOCK, SLOTS = 2, 16, 16, 4
TABLE, WEIGHT = torch.randn(50, HEADS * DIM), torch.randn(HEADS * DIM, 3)


class Layer:
    """Embeds, convolves, and attends to what came out."""

    def __init__(self):
        backend = NativeAttentionBackend(AttentionContext(torch.device("cpu"), F32, F32, BLOCK))
        site = AttentionSite(0, HEADS, HEADS, DIM, 0.25)
        self.plan, self.attention = backend.plan, backend.layer(site)
        self.kv = torch.zeros(9, *backend.kv_layout(site).block_shape)
        self.memory = torch.full((SLOTS, HEADS * DIM, 2), float("nan"))

    def __call__(self, step):
        x = elementwise.gather(TABLE, step.token_ids)
        x = recurrent.causal_conv(x, WEIGHT, None, State(self.memory, step.states), False).view(-1, HEADS, DIM)
        self.attention.write_kv(x, x, self.kv, step.plans[0])
        return self.attention.forward(x, self.kv, step.plans[0])

    def step(self, lengths, contexts, slots):
        """A step of rows with tokens in it and before it, each with two blocks of its own."""
        starts, tokens = np.cumsum([0, *lengths], dtype=np.int32), sum(lengths)
        table = torch.tensor([[1 + 2 * slot, 2 + 2 * slot] for slot in slots], dtype=torch.int32)
        positions = torch.tensor([c + i for n, c in zip(lengths, contexts) for i in range(n)])
        rows = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        places = table[rows, positions // BLOCK].long() * BLOCK + positions % BLOCK
        held = np.add(lengths, contexts).astype(np.int32)
        view = BatchView(starts, held, table, places, max(lengths), int(held.max()))
        fresh = torch.tensor([int(context == 0) for context in contexts])
        states = StateRows(torch.tensor(slots), fresh, starts)
        ids = torch.arange(tokens) * 7 % 50
        return SimpleNamespace(token_ids=ids, positions=positions, plans=[self.plan(view)], states=states)


@pytest.mark.skipif(not library.available(), reason="no native library")
def test_a_program_runs_rows_of_any_lengths():
    """Also those that attention takes apart: of a row of three tokens with a context it makes three rows."""
    eager, replayed = Layer(), Layer()
    graph = None
    for lengths, contexts, slots in (
        ([5, 20], [0, 0], [2, 0]),
        ([1, 3, 9], [5, 20, 0], [2, 0, 3]),
        ([1, 1, 2, 1], [6, 23, 9, 0], [2, 0, 3, 1]),
    ):
        graph = graph or ProgramGraphs().capture(replayed, replayed.step(lengths, contexts, slots))
        wanted = eager(eager.step(lengths, contexts, slots))
        got = graph.replay(replayed.step(lengths, contexts, slots))
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(replayed.memory, eager.memory, rtol=0, atol=0, equal_nan=True)
    assert "torch" not in graph.describe()
    with pytest.raises(IndexError, match="slots of states: number 1 of 2 is 4, outside 0 to 3"):
        step = replayed.step([1, 1], [7, 24], [2, 0])
        step.states = StateRows(torch.tensor([2, SLOTS]), step.states.fresh, step.states.starts)
        graph.replay(step)
