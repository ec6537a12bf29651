"""One engine writes 64 answers of a 1B model. An item is `ENGINE|FILE`; the file gets its tokens a second."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from part import main

sys.path.insert(0, str(Path(__file__).parents[1] / "phases"))
from shapes import ONE, SMALL, write_model


def one(item: str, platform: str, small: bool) -> list[str]:
    """Measure an engine."""
    engine, file = item.split("|")
    rows, out = (2, 4) if small else (64, 128)
    prompts = [[3 + (i * 31 + row * 17) % 90 for i in range(64)] for row in range(rows)]
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), SMALL if small else ONE)
        seconds = ENGINES[engine](model, platform, prompts, out, small)
    Path(file).write_text(str(rows * out / seconds))
    return []


def _core(model: str, platform: str, prompts: list[list[int]], out: int, small: bool) -> float:
    from core import LLM, SamplingParams

    def asked(count: int) -> SamplingParams:
        return SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)

    options = {"attention_backend": "torch_sdpa", "dtype": "float32"} if small else {"dtype": "bfloat16"}
    options |= {"platform": platform, "load_format": "dummy", "prefix_caching": False}
    with LLM(model, **options, max_num_seqs=len(prompts), max_model_len=64 + 2 * out) as llm:
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        llm.generate(given, asked(2))
        began = time.perf_counter()
        llm.generate(given, asked(out))
        return time.perf_counter() - began


def _transformers(model: str, platform: str, prompts: list[list[int]], out: int, small: bool) -> float:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    device = {"cuda": "cuda", "rocm": "cuda", "xpu": "xpu"}.get(platform, "cpu")
    dtype = torch.float32 if small else torch.bfloat16
    with torch.device(device):
        made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model), dtype=dtype)
    made.eval()
    chosen = GenerationConfig(max_new_tokens=out, min_new_tokens=out, do_sample=False, eos_token_id=-1, pad_token_id=0)
    if not small:  # each call takes the memory for its cache anew
        made.generate_batch(inputs=prompts, generation_config=chosen)
    began = time.perf_counter()
    made.generate_batch(inputs=prompts, generation_config=chosen)
    return time.perf_counter() - began


ENGINES = {"core": _core, "transformers": _transformers}

if __name__ == "__main__":
    main(one)
