"""Offline generation on a scripted engine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from core import LLM, SamplingParams
from core.api.errors import CheckpointError, ConfigError, EngineError, RequestError
from core.config.resolved import Options
from core.engine.messages import Abort, Add, Failed
from core.frontend.overrides import options_with

LONG = SamplingParams(max_tokens=40)


def test_outputs_come_in_the_order_of_the_prompts(offline):
    llm, _ = offline(by_prompt={"a": "a longer answer than the rest", "b": "short", "c": ""})
    outputs = llm.generate(["a", {"prompt": "b"}, llm.get_tokenizer().encode("c")], LONG)
    assert [output.outputs[0].text for output in outputs] == ["a longer answer than the rest", "short", ""]
    assert [output.prompt for output in outputs] == ["a", "b", None]
    assert all(output.finished and output.outputs[0].finish_reason == "stop" for output in outputs)
    assert len({output.request_id for output in outputs}) == 3


def test_one_prompt_needs_no_list(offline):
    llm, _ = offline("yes")
    assert [len(llm.generate(prompt, LONG)) for prompt in ("a", [5, 6], {"prompt": "a"}, ["a"])] == [1, 1, 1, 1]
    assert llm.generate([], LONG) == []


def test_parameters_and_priorities_per_prompt(offline):
    llm, core = offline("abcdef")
    params = [SamplingParams(max_tokens=1), SamplingParams(max_tokens=3, n=2)]
    outputs = llm.generate(["a", "b"], params, priority=[5, 6])
    assert [[part.text for part in output.outputs] for output in outputs] == [["a"], ["abc", "abc"]]
    assert [message.priority for message in core.sent] == [5, 6, 6]
    assert outputs[1].outputs[1].finish_reason == "length"
    for kwargs in ({"sampling_params": params}, {"priority": [1, 2]}):
        with pytest.raises(RequestError, match="2 entries for 1 prompts"):
            llm.generate(["a"], **kwargs)


def test_a_bad_prompt_refuses_all_before_anything_runs(offline):
    llm, core = offline()
    with pytest.raises(RequestError) as caught:
        llm.generate(["fine", [5] * 64], LONG)
    assert caught.value.code == "context_length_exceeded" and core.sent == []
    with pytest.raises(RequestError):
        llm.generate(7, LONG)


def test_the_engines_line_is_not_overrun(offline):
    llm, core = offline("xyz", scheduler={"max_waiting": 4})
    outputs = llm.generate(
        ["a"] * 20 + ["b"], [SamplingParams(max_tokens=9)] * 20 + [SamplingParams(max_tokens=9, n=6)]
    )
    assert [len(output.outputs) for output in outputs] == [1] * 20 + [6]
    assert all(part.text == "xyz" for output in outputs for part in output.outputs)
    assert core.most_running == 6  # one request that is wider than the line still runs, alone


def test_stop_texts_abort_the_engines_request(offline):
    llm, core = offline("one two three four", eos=False)
    output = llm.generate("a", SamplingParams(max_tokens=40, stop=["wo t", "zzz"]))[0].outputs[0]
    assert (output.text, output.finish_reason, output.stop_reason) == ("one t", "stop", "wo t")
    assert [type(message) for message in core.sent] == [Add, Abort] and not core.running


def test_defaults_of_the_models_makers(offline):
    llm, core = offline(generation={"temperature": 0.3, "top_k": 7, "eos_token_id": 0, "do_sample": True})
    llm.generate("a")
    assert (core.sent[0].params.temperature, core.sent[0].params.top_k) == (0.3, 7)
    odd, _ = offline(generation={"temperature": -3})
    assert odd.default_params == SamplingParams()


def test_chat(offline):
    llm, _ = offline("hi there", max_model_len=80)
    one = [{"role": "user", "content": "Hello"}]
    output = llm.chat(one, LONG)[0]
    assert output.prompt == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert output.prompt_token_ids == llm.get_tokenizer().encode(output.prompt, add_special_tokens=False)
    assert output.prompt_token_ids[0] == 1
    assert len(llm.chat([one, one], LONG)) == 2
    open_end = llm.chat([*one, {"role": "assistant", "content": "Wel"}], LONG, add_generation_prompt=False)[0]
    assert open_end.prompt.endswith("Wel<|im_end|>\n")
    with pytest.raises(RequestError, match="must not be empty"):
        llm.chat([], LONG)
    with pytest.raises(RequestError) as caught:
        llm.chat([{"role": "user", "content": "x" * 79}], LONG)
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")


def test_chat_without_and_with_a_replaced_template(offline, tokenizer, tmp_path):
    class Bare:
        def __getattr__(self, name):
            return None if name == "chat_template" else getattr(tokenizer, name)

    llm, _ = offline(with_tokenizer=Bare())
    with pytest.raises(RequestError, match="--chat-template"):
        llm.chat([{"role": "user", "content": "a"}], LONG)
    file = tmp_path / "t.jinja"
    file.write_text("{{ eos_token }}{{ messages[0].content }}")
    llm, _ = offline(model={"chat_template": str(file)})
    assert llm.chat([{"role": "user", "content": "a"}], LONG)[0].prompt == "</s>a"
    file.write_text("{% if %}")
    with pytest.raises(CheckpointError, match="CORE-M112"):
        offline(model={"chat_template": str(file)})
    with pytest.raises(ConfigError, match="CORE-C121"):
        offline(model={"chat_template": str(tmp_path / "none")})


def test_calls_and_close(offline):
    llm, _ = offline()
    assert llm.call("echo", 1, "x") == ["echo", 1, "x"]
    with pytest.raises(EngineError, match="no such method"):
        llm.call("fail")
    engine = llm._engine
    with llm:
        llm.close()
    assert engine.closed == 1
    with pytest.raises(EngineError, match="closed"):
        llm.generate("a")


def test_an_interrupt_leaves_a_usable_engine(offline, monkeypatch):
    llm, core = offline("answer")
    step = core.step

    def interrupted():
        raise KeyboardInterrupt

    core.step = interrupted
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a", "b"], LONG)
    assert not core.running
    core.step = step
    assert llm.generate("a", LONG)[0].outputs[0].text == "answer"


def test_an_engine_that_stops_working_is_an_error(offline):
    llm, core = offline()
    core.send = lambda message: []
    with pytest.raises(EngineError, match="CORE-E152"):
        llm.generate("a", LONG)
    with pytest.raises(EngineError, match="CORE-E152"):
        llm.call("stats")


@pytest.mark.parametrize("use", [lambda llm: llm.generate("a", LONG), lambda llm: llm.call("stats")])
def test_what_the_engine_says_of_its_end_is_what_is_raised(offline, monkeypatch, use):
    llm, _ = offline()
    gone = EngineError("CORE-E110", "the engine is gone.")
    monkeypatch.setattr(llm._engine, "step", lambda: [Failed(gone.to_dict())])
    with pytest.raises(EngineError, match="CORE-E110"):
        use(llm)


def test_progress_is_shown_on_demand(offline, capsys):
    llm, _ = offline()
    llm.generate(["a", "b"], LONG, use_tqdm=True)
    assert "Prompts" in capsys.readouterr().out


def test_the_longest_request_is_what_the_engine_can_serve(offline):
    llm, core = offline(max_model_len=64)
    core.ready.max_model_len = 32  # its blocks hold no more
    small = LLM.from_parts(type("R", (), {"config": llm.config, "reader": _reader(llm)}), llm._engine)
    assert small.model.max_model_len == 32


def _reader(llm):
    return type("Reader", (), {"tokenizer": staticmethod(lambda path: llm.get_tokenizer())})


def test_options_by_name():
    options = options_with(None, {"model": "m", "dtype": "float32", "max_num_seqs": 4, "kv_connector": ["a"]})
    assert (options.model.dtype, options.scheduler.max_num_seqs, options.select.kv_connector) == ("float32", 4, ["a"])
    assert options_with(None, {"enable_prefix_caching": False}).kv.prefix_caching is False
    base = Options.model_validate({"kv": {"num_blocks": 9}, "runtime": {"plugin_options": {"x": {"k": 1}}}})
    changed = options_with(base, {"block_size": 8})
    assert (changed.kv.num_blocks, changed.kv.block_size) == (9, 8)
    assert changed.runtime.plugin_options == {"x": {"k": 1}}
    with pytest.raises(ConfigError, match=r"CORE-C130.*max_num_seqs"):
        options_with(None, {"max_num_seq": 4})
    with pytest.raises(ConfigError, match="CORE-C101"):
        options_with(None, {"max_num_seqs": 0})


def test_importing_the_front_end_loads_no_torch():
    code = (
        "import sys; from core import LLM, AsyncLLM; sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
