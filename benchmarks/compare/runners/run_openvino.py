"""OpenVINO GenAI with continuous batching, which reads GGUF files itself."""

from __future__ import annotations

from common import read_spec, report, since_start, time_cases


def main() -> None:
    """Load the model and time all cases."""
    spec = read_spec()
    import numpy
    import openvino
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_seqs, scheduler.max_num_batched_tokens = 64, 2048
    scheduler.enable_prefix_caching = False
    scheduler.cache_size = 1
    pipe = openvino_genai.ContinuousBatchingPipeline(
        spec["model"], scheduler, "CPU", {"INFERENCE_NUM_THREADS": spec["threads"]}
    )
    seconds = since_start()

    def generate(prompts: list[list[int]], output_len: int) -> int:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = output_len, True, False
        config.apply_chat_template = False
        inputs = [openvino.Tensor(numpy.array([ids], dtype=numpy.int64)) for ids in prompts]
        results = pipe.generate(inputs, [config] * len(inputs))
        return sum(len(result.m_generation_ids[0]) for result in results)

    report(ready_s=seconds, seconds=time_cases(spec, generate))


if __name__ == "__main__":
    main()
