"""How each engine is asked for the distributions: given texts, place by place, as a prompt and token by token."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.accuracy.figures import TOP, Distribution, Text
from benchmarks.compare import engines, llama_cpp, process
from benchmarks.compare.environments import Environments

_PORT = 18734
_MOST_SECONDS = 900.0


def core(model: Path, texts: Sequence[Text], at_once: int, options: Mapping[str, Any]) -> list[Distribution]:
    """Compute the texts as prompts, so many tokens a step: with 1, by what decodes one stream."""
    from core import LLM, SamplingParams

    sizes: dict[str, Any] = {
        "max_num_batched_tokens": at_once,
        "max_num_seqs": 1,
        "max_model_len": 256,
        "kv_memory": "64MiB",
    }
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=TOP)
    with LLM(str(model), prefix_caching=False, **sizes, **options) as llm:
        outputs = llm.generate([{"prompt_token_ids": list(text.ids)} for text in texts], params)
    found: list[Distribution] = []
    for text, output in zip(texts, outputs, strict=True):
        told = output.prompt_logprobs or []
        found += [{token: one.logprob for token, one in (told[place] or {}).items()} for place in text.places]
    return found


def transformers(model: Path, texts: Sequence[Text], at_once: int, options: Mapping[str, Any]) -> list[Distribution]:
    """Run the model of a folder, on whole texts or, if `at_once` is 1, token by token."""
    import torch

    network = load(model, getattr(torch, options["dtype"]))
    found: list[Distribution] = []
    for text in texts:
        logits = logits_of(network, text, whole=at_once > 1)
        top = torch.log_softmax(logits.float(), dim=-1).topk(TOP)
        found += [dict(zip(*pair, strict=True)) for pair in zip(top.indices.tolist(), top.values.tolist(), strict=True)]
    return found


def load(model: Path, dtype: Any) -> Any:
    """Load a folder, or a GGUF file, whose weights are decoded."""
    from transformers import AutoModelForCausalLM, GgufConfig

    form: dict[str, Any] = {}
    if not model.is_dir():
        form = {"gguf_file": model.name, "quantization_config": GgufConfig(dequantize=True)}
    return AutoModelForCausalLM.from_pretrained(model.parent if form else model, dtype=dtype, **form)


def logits_of(network: Any, text: Text, *, whole: bool) -> Any:
    """Return the logits `(answer, vocabulary)` that the answer's tokens are chosen from."""
    import torch

    ids, past, rows = torch.tensor([list(text.ids)]), None, []
    with torch.inference_mode():
        if whole:
            return network(ids).logits[0, text.start - 1 : -1]
        for place in range(len(text.ids) - 1):
            out = network(ids[:, place : place + 1], past_key_values=past, use_cache=True)
            past = out.past_key_values
            rows.append(out.logits[0, -1])
    return torch.stack(rows[text.start - 1 :])


def llama(model: Path, texts: Sequence[Text], at_once: int, options: Mapping[str, Any]) -> list[Distribution]:
    """Ask llama.cpp's server for one token after each beginning; if `at_once` is 1 it keeps what it has computed."""
    with _llama_server(Path(options["peers"]), model) as base:
        return [_next(base, text.ids[:place], keep=at_once == 1) for text in texts for place in text.places]


def _next(base: str, ids: Sequence[int], *, keep: bool) -> Distribution:
    body = {"prompt": list(ids), "n_predict": 1, "n_probs": TOP, "temperature": 0.0, "cache_prompt": keep}
    request = urllib.request.Request(
        f"{base}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        told = json.load(answer)["completion_probabilities"][0]["top_logprobs"]
    return {one["id"]: one["logprob"] for one in told}


def vllm(model: Path, texts: Sequence[Text], at_once: int, options: Mapping[str, Any]) -> list[Distribution]:
    """Compute the texts as prompts by vLLM, in its own environment.

    Raises:
        SetupError, MeasurementError: It cannot be had here, or it does not run the model.
    """
    env = Environments(Path(options["peers"])).get("vllm")
    spec = {"model": str(model), "top": TOP, "texts": [list(text.ids) for text in texts]}
    command = [env.python, str(engines.RUNNERS / "ask_vllm.py"), json.dumps(spec)]
    told = process.measure(command, env.environ, _MOST_SECONDS).result["told"]
    rows = (one[place] for text, one in zip(texts, told, strict=True) for place in text.places)
    return [{int(token): logprob for token, logprob in row.items()} for row in rows]


@contextmanager
def _llama_server(peers: Path, model: Path) -> Iterator[str]:
    command = [str(llama_cpp.programs(peers) / "llama-server"), "-m", str(model), "-c", "512", "-np", "1"]
    base = f"http://127.0.0.1:{_PORT}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(_PORT)], **quiet) as process:  # type: ignore[call-overload]
        try:
            _wait(base, process)
            yield base
        finally:
            process.terminate()


def _wait(base: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=5):
                return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.2)
    raise SystemExit("llama-server does not start")
