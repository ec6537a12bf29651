"""transformers' `generate` on one batch."""

from __future__ import annotations

from common import read_spec, report, since_start, time_cases


def main() -> None:
    """Load the model and time all cases."""
    spec = read_spec()
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(spec["threads"])
    model = AutoModelForCausalLM.from_pretrained(spec["model"], dtype=getattr(torch, spec["dtype"]))
    seconds = since_start()

    def generate(prompts: list[list[int]], output_len: int) -> int:
        ids = torch.tensor(prompts)
        mask = torch.ones_like(ids)
        lengths = {"max_new_tokens": output_len, "min_new_tokens": output_len}
        with torch.inference_mode():
            made = model.generate(ids, attention_mask=mask, do_sample=False, pad_token_id=0, **lengths)
        return int(made.numel() - ids.numel())

    report(ready_s=seconds, seconds=time_cases(spec, generate))


if __name__ == "__main__":
    main()
