"""transformers' continuous batching on the same model, beside core: a target of three times its rate."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from record import SHAPES, Record, write_model

TARGET = 3.0


def main() -> None:
    """Run the phase."""
    record = Record()
    shape = "small" if record.small else "1B"
    rows, out = (2, 4) if record.small else (64, 128)
    prompts = [[3 + (i * 31 + row * 17) % 90 for i in range(64)] for row in range(rows)]
    from core.testing.tinymodels import tiny_tokenizer

    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), shape, tiny_tokenizer)
        rates: dict[str, float] = {}
        with record.part("core"):
            rates["core"] = _core(record, str(model), prompts, out)
            record.note(f"{shape}, core, {rows} requests, tokens/s", rates["core"])
        with record.part("transformers"):
            rates["transformers"] = _transformers(record, model, prompts, out)
            record.note(f"{shape}, transformers, {rows} requests, tokens/s", rates["transformers"])
        if len(rates) == 2:
            record.note(f"core by transformers (target {TARGET:g})", rates["core"] / rates["transformers"])
    record.note("layers", SHAPES[shape]["num_hidden_layers"])


def _core(record: Record, model: str, prompts: list[list[int]], out: int) -> float:
    from core import LLM, SamplingParams

    params = SamplingParams(temperature=0.0, max_tokens=out, ignore_eos=True)
    with LLM(model, **record.options, max_num_seqs=len(prompts), max_model_len=64 + 2 * out) as llm:
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        llm.generate(asked, SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True))
        began = time.perf_counter()
        llm.generate(asked, params)
        return len(prompts) * out / (time.perf_counter() - began)


def _transformers(record: Record, folder: Path, prompts: list[list[int]], out: int) -> float:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.from_pretrained(folder)
    device = {"cuda": "cuda", "rocm": "cuda", "xpu": "xpu"}.get(record.platform, "cpu")
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if not record.small else torch.float32)
    model.eval()
    chosen = GenerationConfig(max_new_tokens=out, min_new_tokens=out, do_sample=False, eos_token_id=-1, pad_token_id=0)
    model.generate_batch(inputs=prompts[:2], generation_config=chosen)
    began = time.perf_counter()
    model.generate_batch(inputs=prompts, generation_config=chosen)
    return len(prompts) * out / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
