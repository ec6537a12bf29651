from torch.nn import functional

CALLS = {"rms_norm": 0, "silu_and_mul": 0}


def rms_norm(x, weight, eps):
    CALLS["rms_norm"] += 1
    return functional.rms_norm(x, weight.shape, weight, eps)


def silu_and_mul(x):
    CALLS["silu_and_mul"] += 1
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate) * up
