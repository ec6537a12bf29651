"""Compiles the attention kernels for cards that are not here: run by `test_triton_compiles` in its own process.

Arguments: `cuda:90` or `hip:gfx942`, the dtype of queries, that of the cache, the size of a head, and `all`
or `none`: windows, caps and so on. Prints JSON: bytes of shared memory that each kernel takes.
"""

import json
import sys
from dataclasses import replace

import torch
import triton
from core_plugin_kernels_triton.attention.few import split_kernel
from core_plugin_kernels_triton.attention.form import FLOAT8, form_of, power_of_two
from core_plugin_kernels_triton.attention.merge import merge_kernel
from core_plugin_kernels_triton.attention.prompts import prompt_kernel
from core_plugin_kernels_triton.attention.store import store_kernel
from core_plugin_kernels_triton.attention.tiles import tiles_of
from core_plugin_kernels_triton.tables import sizes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from core.api.attention import AttentionSite

NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.uint8: "u8"}
POINTERS = {
    **dict.fromkeys(("tables", "starts", "lengths"), "*i32"),
    **dict.fromkeys(("slots", "positions"), "*i64"),
    **dict.fromkeys(("slopes", "sinks", "key_scales", "value_scales"), "*fp32"),
    **dict.fromkeys(("sums_out", "tops_out", "sums_in", "tops_in"), "*fp32"),
    **dict.fromkeys(("inner", "outer"), "fp32"),
}
ALIGNED = (
    *("q", "kv", "out", "k", "v", "table", "slopes", "sinks", "key_scales", "value_scales"),
    *("sums_out", "tops_out", "sums_in", "tops_in"),
    *("q_token", "q_head", "out_token", "kv_block", "kv_half", "kv_token", "kv_head"),
)
"""Multiples of 16, as those of models are: what is loaded by 16 bytes is loaded ahead, and takes shared memory."""


def target_of(name):
    """Return Triton's target and the sections of its tables."""
    backend, _, arch = name.partition(":")
    if backend == "hip":
        return GPUTarget("hip", arch, 32 if arch.startswith("gfx1") else 64), ("default", "hip", name)
    card = f"{arch[:-1]}.{arch[-1]}"
    return GPUTarget("cuda", int(arch), 32), ("default", "cuda", f"cuda:{card}")


def compiled(kernel, pointers, constants, target, warps, stages):
    """Compile one kernel; return the bytes of shared memory that it takes."""
    names = {**POINTERS, **pointers}
    taken = {name: constants[name] for name in kernel.arg_names if name in constants}
    signature = {name: "constexpr" if name in taken else names.get(name, "i32") for name in kernel.arg_names}
    places = [place for place, name in enumerate(kernel.arg_names) if name in ALIGNED and name not in taken]
    source = ASTSource(kernel, signature, taken, {(place,): [["tt.divisibility", 16]] for place in places})
    found = triton.compile(source, target=target, options={"num_warps": warps, "num_stages": stages})
    return found.metadata.shared


def main(name, dtype, kv_dtype, head_dim, terms):
    target, sections = target_of(name)
    dtype, kv_dtype, head_dim = getattr(torch, dtype), getattr(torch, kv_dtype), int(head_dim)
    site = AttentionSite(0, 6, 2, head_dim, 1.0)
    if terms == "all":
        site = replace(site, window=100, softcap=1.0, sinks=True, slopes=(1.0,) * 6)
    tiles = tiles_of(sizes("attention", sections), power_of_two(head_dim) * dtype.itemsize)
    f = form_of(site, 16, kv_dtype, tiles)
    kept = torch.uint8 if kv_dtype in FLOAT8 else kv_dtype
    pointers = {"kv": f"*{NAMES[kept]}", **dict.fromkeys(("q", "out", "k", "v"), f"*{NAMES[dtype]}")}
    pointers["table"] = f"*{NAMES[dtype]}"
    constants = {
        "GROUP": f.group,
        "KV_HEADS": f.kv_heads,
        "HEAD_DIM": f.dim,
        "BLOCK_D": f.width,
        "BLOCK_SIZE": f.block_size,
        "WINDOW": f.window,
        "CHUNK": f.chunk,
        "CAPPED": f.capped,
        "ALIBI": f.alibi,
        "FLOAT8": f.float8,
        "SINKS": int(site.sinks),
        "SPLIT": f.split,
        "SPLITS": f.splits,
        "TOGETHER": f.together,
        "ROTARY": head_dim // 4 * 2 if site.sinks else 0,
        "PAIRS": False,
        "ROWS": f.stored,
        "FEW": f.few,
        "HEADS": f.merged,
    }
    storing = dict(constants)
    if terms == "none":
        constants |= dict.fromkeys(("slopes", "sinks"))
        storing |= dict.fromkeys(("q", "out", "positions", "table"))
    prompt = {**constants, "BLOCK_M": f.prompt_m, "BLOCK_N": f.prompt_n}
    single = {**constants, "BLOCK_M": f.few_m, "BLOCK_N": f.few_n}
    found = {
        "prompt": compiled(prompt_kernel, pointers, prompt, target, f.prompt_warps, f.prompt_stages),
        "whole": compiled(split_kernel, pointers, {**single, "WHOLE": True}, target, f.few_warps, f.few_stages),
        "split": compiled(split_kernel, pointers, {**single, "WHOLE": False}, target, f.few_warps, f.few_stages),
        "merge": compiled(merge_kernel, pointers, single, target, 4, 2),
        "store": compiled(store_kernel, pointers, storing, target, 4, 2),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
