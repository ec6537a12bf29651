"""`core chat` and `core run` as somebody at a terminal meets them."""

from __future__ import annotations

import json
import signal
import time

import psutil
import pytest

CTRL_C, CTRL_D = "\x03", "\x04"
PATIENCE = 30
LOCAL = ("--threads", "1", "--num-blocks", "100", "--max-model-len", "1024", "--dtype", "float32")


BEGUN = r"\s+(\S waiting\s+)*\w"
"""An answer that has begun, perhaps after the sign that it is waited for."""


def left_by_a_model(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith("core-")]


def test_a_conversation(terminal, server, folder):
    chat = terminal("chat", "--url", server.url, "--temperature", "0", "--max-tokens", "24", "--stats")
    chat.expect("chatting with smollm2")
    chat.expect("> ")
    chat.type("What is the capital of France?\n")
    chat.expect(r"France\?" + BEGUN)
    chat.expect(r"\d+ tokens read, first token after \d+ ms, [\d.]+ tokens/s, \d+ tokens\]")
    saved = folder / "talk.json"
    chat.type(f"/save {saved}\n")
    chat.expect("2 messages written")
    chat.type("/clear\n")
    chat.expect("forgotten")
    chat.type(f"/load {saved}\n")
    chat.expect("2 messages read")
    chat.type("/exit\n")
    assert chat.wait() == 0
    messages = json.loads(saved.read_text())["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] and messages[1]["content"]
    history = folder / "state" / "core" / "chat_history"
    assert "What is the capital of France?" in history.read_text() and history.stat().st_mode & 0o077 == 0


def test_ctrl_c_stops_the_answer_here_and_at_the_server(terminal, server):
    chat = terminal("chat", "--url", server.url, "--no-history", "--no-markdown", "--min-p", "0.1")
    chat.expect("> ")
    chat.type("Count from one to ten thousand, one number per line.\n")
    chat.expect(r"per line\." + BEGUN)
    chat.type(CTRL_C)
    chat.expect(r"\[stopped\]")
    chat.prompt()
    deadline = time.monotonic() + 10
    while server.gauges()["core_num_requests_running"] > 0:
        assert time.monotonic() < deadline, "the server goes on"
        time.sleep(0.05)
    chat.type(CTRL_C)
    assert chat.wait() == 0


def test_two_ctrl_c_at_the_prompt_leave_and_one_forgets_the_line(terminal, server):
    chat = terminal("chat", "--url", server.url, "--no-history", "--max-tokens", "2")
    chat.prompt()
    chat.type("never sent")
    chat.expect("never sent")
    chat.type(CTRL_C)
    chat.expect("Ctrl-C again")
    chat.prompt()
    chat.type("/stats\n")
    chat.expect("0 answers")
    chat.prompt()
    chat.type(CTRL_C)
    chat.expect("Ctrl-C again")
    chat.prompt()
    chat.type(CTRL_C)
    assert chat.wait() == 0


def test_several_lines_are_one_message(terminal, server, folder):
    chat = terminal("chat", "--url", server.url, "--no-history", "--max-tokens", "1")
    chat.expect("> ")
    chat.type("one\\\ntwo\n")
    chat.expect(r"\n> ")
    chat.type('"""three\n\nfour\n"""\n')
    chat.expect(r"\n> ")
    chat.type("\x1b[200~five\nsix\x1b[201~\n")
    chat.expect(r"\n> ")
    chat.type(f"/save {folder}/talk.json\n")
    chat.expect("messages written")
    chat.prompt()
    chat.type(CTRL_D)
    assert chat.wait() == 0
    messages = json.loads((folder / "talk.json").read_text())["messages"]
    asked = [message["content"] for message in messages if message["role"] == "user"]
    assert asked == ["one\ntwo", "three\n\nfour", "five\nsix"]


def test_a_server_that_ends_does_not_end_the_chat(terminal, launch, tiny):
    server = launch(str(tiny), "--threads", "1", "--num-blocks", "40").wait_ready()
    chat = terminal("chat", "--url", server.url, "--no-history")
    chat.expect("> ")
    server.end()
    chat.type("hello\n")
    chat.expect("CORE-S190")
    chat.type("/retry\n")
    chat.expect("CORE-S190")
    chat.prompt()
    chat.type(CTRL_D)
    assert chat.wait() == 0


def test_no_server_ends_it_before_anything_is_typed(terminal):
    chat = terminal("chat", "--url", "http://127.0.0.1:9")
    assert chat.wait() == 1
    assert "CORE-S190" in chat.text and "> " not in chat.text


def test_a_model_of_its_own_streams_and_leaves_nothing(terminal, folder):
    chat = terminal("run", "smollm2", *LOCAL, "--max-tokens", "400", "--no-markdown", "--seed", "3", "--stats")
    chat.expect("chatting with smollm2")
    family = psutil.Process(chat.process.pid).children(recursive=True)
    assert len(family) == 1 and left_by_a_model(folder)
    chat.type("Tell me a long story.\n")
    chat.expect(r"story\." + BEGUN)
    chat.type(CTRL_C)  # reaches the whole family, and only the answer ends
    chat.expect(r"tokens\]|no text\]")
    chat.type("/retry\n")
    chat.expect(r"retry" + BEGUN)
    chat.type(CTRL_C)
    chat.expect(r"tokens\]|no text\]")
    chat.type("/exit\n")
    assert chat.wait() == 0
    assert not psutil.wait_procs(family, timeout=10)[1] and left_by_a_model(folder) == []


@pytest.mark.parametrize("how", ["hangup", "term", "kill"])
def test_a_model_of_its_own_ends_with_its_command(terminal, tiny, folder, how):
    chat = terminal("run", str(tiny), *LOCAL)
    chat.expect("chatting with")
    family = psutil.Process(chat.process.pid).children(recursive=True)
    if how == "hangup":
        chat.hang_up()
    else:
        chat.process.send_signal(signal.SIGTERM if how == "term" else signal.SIGKILL)
    chat.process.wait(PATIENCE)
    assert not psutil.wait_procs(family, timeout=10)[1]
    if how != "kill":
        assert left_by_a_model(folder) == []


def test_an_engine_that_dies_ends_its_answers_and_not_the_chat(terminal, tiny, folder):
    chat = terminal("run", str(tiny), *LOCAL, "--engine-restarts", "0")
    chat.expect("chatting with")
    (engine,) = psutil.Process(chat.process.pid).children(recursive=True)
    engine.kill()
    for _ in range(2):
        chat.type("hello\n")
        chat.expect("core: CORE-S19")
        chat.prompt()
    chat.type(CTRL_D)
    assert chat.wait() == 0 and left_by_a_model(folder) == []


def test_thoughts_are_dim_and_answers_are_drawn(terminal, launch, scripted):
    checkpoint, plugin = scripted
    flags = ("--threads", "1", "--num-blocks", "400", "--reasoning-parser", "qwen3")
    server = launch(checkpoint, *flags, PYTHONPATH=plugin).wait_ready()
    chat = terminal("chat", "--url", server.url, "--no-history")
    chat.prompt()
    chat.type('"""<think>\nIt may be so.\n</think>\n\n# Title\n\n- **one**\n- two\n"""\n')
    chat.prompt()
    said = chat.raw.rpartition('"""')[2]
    assert "\x1b[2mIt may be so." in said and "**one**" not in said and "• " in said and "\x1b[1mone" in said
    chat.type(CTRL_D)
    assert chat.wait() == 0


def test_ctrl_c_while_the_model_is_loaded(terminal, folder):
    chat = terminal("run", "smollm2", *LOCAL)
    deadline = time.monotonic() + PATIENCE
    while not left_by_a_model(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    chat.type(CTRL_C)
    assert chat.wait() == 130
    assert "Traceback" not in chat.text and left_by_a_model(folder) == []


def test_one_question_to_a_model_of_its_own(core, folder):
    words = ("-q", "What is the capital of France?", "--temperature", "0", "--max-tokens", "16")
    result = core("run", "smollm2", *LOCAL, *words)
    assert result.returncode == 0, result.stderr
    assert "Paris" in result.stdout and "loading" not in result.stdout
    local = core("complete", "--local", "smollm2", "-q", "The capital of France is", *words[2:])
    assert local.returncode == 0 and "Paris" in local.stdout


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        (("run", "nothing/at-all"), "CORE-M", 1),
        (("run", "smollm2", "--port", "1"), "CORE-C182", 2),
        (("run", "smollm2", "--dtype", "float8"), "CORE-C101", 2),
        (("run", "smollm2", *LOCAL[:2], "--kv-memory", "1"), "CORE-E120", 1),
        (("chat", "--local", "nothing/at-all"), "CORE-M", 1),
    ],
)
def test_what_cannot_start_says_so_in_one_line(core, words, code, status):
    result = core(*words, "-q", "x")
    errors = [line for line in result.stderr.splitlines() if not line.startswith("loading weights")]
    assert result.returncode == status and len(errors) == 1 and errors[0].startswith(f"core: {code}"), result.stderr
