"""Compiles kernels of layers for cards that are not here: run by `test_triton_layers_compile` in a process of its own.

Arguments: `cuda:90` or `hip:gfx942`, the dtype of activations, and parts to compile (all by default). Prints JSON:
bytes of shared memory of each kernel.
"""

import json
import sys

import torch
import triton
from core_plugin_kernels_triton.experts import multiply, route, sort
from core_plugin_kernels_triton.latent import attend, expand, form, merge, picks, store
from core_plugin_kernels_triton.ops.tiles import power_of_two
from core_plugin_kernels_triton.recurrent import attention, conv, scan
from core_plugin_kernels_triton.tables import sizes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from core.api.attention import AttentionContext, LatentSite

NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def target_of(name):
    """Return Triton's target and the sections of its table."""
    backend, _, arch = name.partition(":")
    if backend == "hip":
        return GPUTarget("hip", arch, 32 if arch.startswith("gfx1") else 64), ("default", "hip", name)
    return GPUTarget("cuda", int(arch), 32), ("default", "cuda", f"cuda:{arch[:-1]}.{arch[-1]}")


def experts(dtype, sections):
    """Yield name, kernel, types of arguments other than int32, constants, and options."""
    table = sizes("experts", sections)
    m, n, k, warps, stages = (table["multiply"][one] for one in ("m", "n", "k", "warps", "stages"))
    for into in (False, True):
        for few in (False, True):
            types = {**dict.fromkeys(("x", "weight", "bias", "out"), f"*{dtype}")}
            types |= dict.fromkeys(("order", "starts"), "*i32")
            constants = {"TOP_K": 8, "INTO": into, "BIASED": few, "FEW": few}
            constants |= {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
            constants |= {} if few else {"bias": None}
            options = {"num_warps": warps, "num_stages": stages}
            yield f"multiply {into:d}{few:d}", multiply.multiply_kernel, types, constants, options
    types = {"results": f"*{dtype}", "weights": "*fp32", "ids": "*i32", "out": f"*{dtype}"}
    constants = {"TOP_K": 8, "ROWS": 1, "BLOCK": table["total"]["tile"]}
    yield "total", multiply.total_kernel, types, constants, {"num_warps": 8}
    kinds = power_of_two(256 + 1)
    constants = {"BLOCK": table["sort"]["block"], "STEP": sort.step_of(table["sort"], kinds), "EXPERTS": kinds}
    for name, kernel in (("count", sort.count_kernel), ("place", sort.place_kernel)):
        yield name, kernel, dict.fromkeys(("ids", "counts", "order", "starts"), "*i32"), constants, {"num_warps": 4}
    types = {**dict.fromkeys(("logits", "correction", "weights"), "*fp32"), "ids": "*i32"}
    types |= dict.fromkeys(("eps", "factor", "cap"), "fp32")
    for rule, (score, groups) in enumerate(((0, 1), (1, 8), (2, 1))):
        constants = {"TOP_K": 8, "SCORE": score, "CHOSEN_ONLY": False, "CORRECTED": True, "GROUPS": groups}
        constants |= {"TOP_GROUPS": max(1, groups // 2), "BY_TWO": True, "RENORMALIZE": True, "CAPPED": rule == 0}
        constants |= {"ROWS": 4, "EXPERTS": 256, "PLACES": 8}
        yield f"route {rule}", route.route_kernel, types, constants, {"num_warps": 4}


def latent(dtype, sections):
    """Yield the same of latent attention: DeepSeek V3's sizes, caches of the compute dtype and of float8."""
    table = sizes("latent", sections)
    form.tiles = lambda device: table
    kinds = {name: kind for kind, name in ((torch.bfloat16, "bf16"), (torch.float16, "fp16"), (torch.float32, "fp32"))}
    for float8 in (False, True):
        kept = torch.float8_e4m3fn if float8 else kinds[dtype]
        context = AttentionContext(torch.device("cpu"), kinds[dtype], kept, 16)
        f = form.form_of(LatentSite(0, 128, 512, 64, 128, 128, 1.0), context)
        types = {**dict.fromkeys(("q", "q_rope", "out", "x"), f"*{dtype}"), "kv": "*u8" if float8 else f"*{dtype}"}
        types |= dict.fromkeys(("tables", "starts", "lengths", "picked"), "*i32")
        types |= dict.fromkeys(("sums_out", "tops_out", "sums_in", "tops_in"), "*fp32")
        types |= {"scale": "fp32", "slots": "*i64"}
        same = {"HEADS": f.heads, "LATENT_DIM": f.latent_dim, "ROPE_DIM": f.rope_dim, "BLOCK_L": f.latent_width}
        same |= {"BLOCK_R": f.rope_width, "BLOCK_SIZE": 16, "FLOAT8": f.float8, "BLOCK_M": f.m, "BLOCK_N": f.n}
        same |= {"KEY_DIM": f.key_dim, "VALUE_DIM": f.value_dim, "FEWEST": f.fewest}
        same |= {"SPLIT": f.split, "SPLITS": f.splits, "MOST": form.FEW}
        options = {"num_warps": f.warps, "num_stages": f.stages}
        for kind in range(3):
            constants = {**same, "KIND": kind, "PICKS": 2048 if kind == 2 else 0}
            constants |= {} if kind == 2 else {"picked": None}
            yield f"latent {kind}{float8:d}", attend.latent_kernel, types, constants, options
        yield f"merge {float8:d}", merge.latent_merge_kernel, types, same, {"num_warps": 4}
        wide = {"KEY_DIM": 128, "VALUE_DIM": 128, "BLOCK_K": f.key_width, "BLOCK_V": f.value_width, "BLOCK_M": f.wide_m}
        wide |= {"HEADS": f.heads, "ROPE_DIM": f.rope_dim, "BLOCK_R": f.rope_width, "BLOCK_N": f.wide_n}
        types |= {"sums_kept": "*fp32", "tops_kept": "*fp32"}
        types |= dict.fromkeys(("keys", "turned", "values"), f"*{dtype}") | {"table": "*i32"}
        wide_options = {"num_warps": f.wide_warps, "num_stages": f.wide_stages}
        for begun, done in () if float8 else ((False, True), (True, False)):
            constants = {**wide, "BEGUN": begun, "DONE": done}
            yield f"expanded {begun:d}", expand.expanded_kernel, types, constants, wide_options
        constants = {"WIDTH": 576, "BLOCK": 1024, "BLOCK_SIZE": 16, "FLOAT8": f.float8, "ROWS": f.stored}
        yield f"open {float8:d}", expand.open_kernel, types, constants, {"num_warps": 4}
        constants = {"WIDTH": 512, "BLOCK": 512, "BLOCK_SIZE": 16, "FLOAT8": f.float8, "ROWS": table["stored"]}
        yield f"store {float8:d}", store.store_row_kernel, types, constants, {"num_warps": 4}
        tile = table["scores"]
        constants = {"HEADS": 64, "KEY_DIM": 128, "BLOCK_H": 64, "BLOCK_D": 128, "BLOCK_SIZE": 16, "FLOAT8": f.float8}
        constants |= {"BLOCK_N": tile["n"]}
        types = {**types, "out": "*fp32", "weights": "*fp32"}
        options = {"num_warps": tile["warps"], "num_stages": tile["stages"]}
        yield f"scores {float8:d}", picks.score_kernel, types, constants, options


def recurrent(dtype, sections):
    """Yield the same of recurrences."""
    table = sizes("recurrent", sections)
    types = dict.fromkeys(("x", "weight", "bias", "out", "q", "k", "v", "b", "c"), f"*{dtype}")
    types |= dict.fromkeys(("memory", "decay", "beta", "step", "a"), "*fp32")
    types |= {"slots": "*i64", "fresh": "*i64", "starts": "*i32", "scale": "fp32"}
    tile = table["conv"]
    constants = {"WIDTH": 4, "BIASED": True, "ACTIVATED": True, "TOKENS": tile["tokens"], "BLOCK": tile["channels"]}
    yield "conv", conv.conv_kernel, {**types, "memory": f"*{dtype}"}, constants, {"num_warps": 4}
    yield "conv state", conv.conv_state_kernel, {**types, "memory": f"*{dtype}"}, constants, {"num_warps": 4}
    tile = table["attention"]
    for chunk, delta, per_key in ((1, True, False), (1, False, True), (tile["chunk"], True, False)):
        constants = {"DELTA": delta, "PER_KEY": per_key, "CHUNK": chunk, "FEWEST": 0 if per_key else tile["fewest"]}
        constants |= {"BLOCK_K": 128, "BLOCK_V": tile["values"]} | ({} if delta else {"beta": None})
        yield f"linear {chunk}{delta:d}", attention.linear_kernel, types, constants, {"num_warps": 4}
    tile = table["scan"]
    constants = {"BLOCK": tile["tile"] // 16, "STATE": 16, "FEWEST": tile["fewest"]}
    yield "scan", scan.scan_kernel, types, constants, {"num_warps": 4}
    constants |= {"CHUNK": tile["chunk"], "BLOCK": tile["chunked"] // (tile["chunk"] * 16)}
    yield "scan by chunks", scan.chunk_kernel, types, constants, {"num_warps": 4}
    yield "gated", scan.gated_kernel, types, {"BLOCK": table["gated"]["channels"]}, {"num_warps": 4}


PARTS = {"experts": experts, "latent": latent, "recurrent": recurrent}


def main(name, dtype, *wanted):
    target, sections = target_of(name)
    found = {}
    for part in wanted or PARTS:
        for job, kernel, types, constants, options in PARTS[part](NAMES[dtype], sections):
            names = kernel.arg_names
            signature = {one: "constexpr" if one in constants else types.get(one, "i32") for one in names}
            source = ASTSource(kernel, signature, {one: constants[one] for one in names if one in constants})
            found[job] = triton.compile(source, target=target, options=options).metadata.shared
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
