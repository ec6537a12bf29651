"""vLLM on the CPU, in one process."""

from __future__ import annotations

from common import read_spec, report, since_start, time_cases


def main() -> None:
    """Load the model and time all cases."""
    spec = read_spec()
    from vllm import LLM, SamplingParams

    llm = LLM(
        spec["model"],
        dtype=spec["dtype"],
        max_model_len=spec["max_len"],
        max_num_seqs=64,
        kv_cache_memory_bytes=spec["kv_mib"] << 20,
        enable_prefix_caching=any(case["held"] for case in spec["cases"]),
        distributed_executor_backend="uni",
        disable_log_stats=True,
    )
    seconds = since_start()

    def generate(prompts: list[list[int]], output_len: int) -> int:
        params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=output_len, detokenize=False)
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    report(ready_s=seconds, seconds=time_cases(spec, generate))


if __name__ == "__main__":
    main()
