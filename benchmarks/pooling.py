"""Embeddings per second: `LLM.embed` beside transformers run as sentence-transformers does.

    python -m benchmarks.pooling [--texts 512] [--threads 2] [--dtype float32 --dtype bfloat16]

Both embed the same token ids with all-MiniLM-L6-v2. transformers gets them sorted by length in batches of 32, padded to
the longest of each batch, with scaled dot-product attention; core gets them as one list.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from core import LLM

BATCH = 32


def prompts(count: int) -> list[list[int]]:
    """Return token ids of texts with the lengths of sentences and paragraphs: a log-normal, 4 to 250 tokens."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(3.6, 0.6, count).astype(int), 4, 250)
    return [[101, *random.integers(1000, 30000, length - 2).tolist(), 102] for length in lengths]


def padded(model: Any, ids: Sequence[list[int]]) -> np.ndarray:
    """Embed in sorted, padded batches: mean of the tokens, length 1."""
    order = np.argsort([-len(one) for one in ids])
    found = np.zeros((len(ids), model.config.hidden_size), np.float32)
    with torch.inference_mode():
        for begin in range(0, len(ids), BATCH):
            places = order[begin : begin + BATCH]
            longest = max(len(ids[place]) for place in places)
            tokens = torch.zeros(len(places), longest, dtype=torch.long)
            for row, place in enumerate(places):
                tokens[row, : len(ids[place])] = torch.tensor(ids[place])
            mask = (tokens != 0).long()
            states = model(input_ids=tokens, attention_mask=mask).last_hidden_state
            weights = mask[:, :, None].to(states.dtype)
            pooled = (states * weights).sum(1) / weights.sum(1)
            found[places] = torch.nn.functional.normalize(pooled.float(), dim=-1).numpy()
    return found


def measure(name: str, embed: Callable[[Sequence[list[int]]], np.ndarray], ids: list[list[int]]) -> np.ndarray:
    """Print and return what `embed` gives, after a warm-up."""
    embed(ids[:64])
    began = time.perf_counter()
    found = embed(ids)
    seconds = time.perf_counter() - began
    tokens = sum(map(len, ids))
    print(f"{name:<24} {len(ids) / seconds:8.0f} texts/s {tokens / seconds:10.0f} tokens/s", flush=True)
    return found


def main() -> None:
    """Measure both in every dtype that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtype", action="append", choices=("float32", "bfloat16"))
    options = parser.parse_args()
    from transformers import AutoModel

    ids = prompts(options.texts)
    for dtype in options.dtype or ("float32", "bfloat16"):
        with LLM("minilm", dtype=dtype, threads=options.threads) as llm:
            path = llm.config.checkpoint.path
            mine = measure(f"core {dtype}", lambda some: np.stack([one.outputs.array for one in llm.embed(some)]), ids)
        torch.set_num_threads(options.threads)
        model = AutoModel.from_pretrained(path, attn_implementation="sdpa", dtype=getattr(torch, dtype)).train(False)
        theirs = measure(f"transformers {dtype}", partial(padded, model), ids)
        print(f"{'':<24} least cosine between the two: {float((mine * theirs).sum(1).min()):.6f}")


if __name__ == "__main__":
    main()
