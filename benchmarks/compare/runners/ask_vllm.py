"""vLLM on the CPU, asked for the most likely tokens at each place of given texts."""

from __future__ import annotations

import os

from common import read_spec, report

# Ranks of tokens would be computed by compiled code, which takes longer to compile than all else here.
os.environ["TORCHDYNAMO_DISABLE"] = "1"


def main() -> None:
    """Tell `{token: log-probability}` of `top` tokens and the next, by text and place; of a first place None."""
    spec = read_spec()
    from vllm import LLM, SamplingParams

    llm = LLM(
        spec["model"],
        gpu_memory_utilization=0.5,  # of all memory, which on a CPU others use as well
        dtype="bfloat16",
        max_model_len=256,
        max_num_seqs=1,
        max_logprobs=spec["top"],
        enable_prefix_caching=False,
        enforce_eager=True,
        distributed_executor_backend="uni",
        disable_log_stats=True,
    )
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=spec["top"], detokenize=False)
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in spec["texts"]], params, use_tqdm=False)
    places = [output.prompt_logprobs for output in outputs]
    report(told=[[one and {token: row.logprob for token, row in one.items()} for one in text] for text in places])


if __name__ == "__main__":
    main()
