"""The chat as a user meets it: commands, several lines, and what is left when something fails."""

from __future__ import annotations

import io
import json
import stat
from types import SimpleNamespace

import pytest
from core_plugin_chat import slash, talk
from core_plugin_chat.conversation import Conversation
from core_plugin_chat.lines import Lines

from core.api.errors import CoreError
from core.cli.client import StreamedDelta
from core.cli.host.processes import Files
from core.cli.main import main


class Model:
    """Answers with the number of messages it got, or fails."""

    model = "tiny"

    def __init__(self):
        self.asked = []
        self.failing = False

    def chat(self, messages, params):
        self.asked.append([(message["role"], message["content"]) for message in messages])
        if self.failing:
            raise CoreError("CORE-S190", "gone.")
        yield StreamedDelta(f"answer {len(self.asked)}")


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def session(model, chat_session):
    return chat_session(model, "--system-prompt", "brief")


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("/help", ("help", "")),
        ("/system  be brief ", ("system", "be brief")),
        ("/system two\nlines", ("system", "two\nlines")),
        ("/etc/hosts is what?", None),
        ("/", None),
        ("//help", None),
        ("/2 is half", None),
        ("say /help", None),
    ],
)
def test_what_is_a_command(message, found):
    assert slash.command(message) == found


def test_two_slashes_send_one(session, model):
    session.take("//clear is a command")
    assert model.asked[-1][-1] == ("user", "/clear is a command")


def test_clear_keeps_the_system_prompt(session, model):
    for message in ("one", "/clear", "two"):
        session.take(message)
    assert model.asked[-1] == [("system", "brief"), ("user", "two")]


def test_system_is_shown_set_and_removed(session, model, capsys):
    for message in ("/system", "/system be long", "one", "/system -", "two"):
        session.take(message)
    assert [asked[0] for asked in model.asked] == [("system", "be long"), ("user", "one")]
    said = capsys.readouterr().err.splitlines()
    assert said == ["system prompt: brief", "system prompt: be long", "system prompt: none"]


def test_retry_takes_the_answer_back(session, model, capsys):
    session.take("/retry")
    assert "no message" in capsys.readouterr().err and model.asked == []
    for message in ("one", "two", "/retry"):
        session.take(message)
    assert model.asked[2] == model.asked[1]
    assert [turn["content"] for turn in session.conversation.turns] == ["one", "answer 1", "two", "answer 3"]


def test_a_message_without_an_answer_is_taken_back_and_can_be_sent_again(session, model):
    session.take("one")
    model.failing = True
    with pytest.raises(CoreError):
        session.take("two")
    assert [turn["content"] for turn in session.conversation.turns] == ["one", "answer 1"]
    with pytest.raises(CoreError):
        session.take("/retry")
    model.failing = False
    session.take("/retry")
    assert [turn["content"] for turn in session.conversation.turns] == ["one", "answer 1", "two", "answer 4"]


def test_save_and_load(session, model, chat_session, tmp_path, capsys):
    path = tmp_path / "talk.json"
    session.take("grüß dich")
    session.take(f"/save {path}")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["model"] == "tiny" and document["messages"] == session.conversation.messages
    other = chat_session(model)
    other.take(f"/load {path}")
    assert other.conversation.messages == session.conversation.messages and other.conversation.system == "brief"
    assert "3 messages read" in capsys.readouterr().err
    for command in ("/save", "/load"):
        other.take(command)
    assert capsys.readouterr().err == "name a file.\n" * 2


@pytest.mark.parametrize("text", ["{", "{}", '{"messages": [{"role": "king", "content": "x"}]}', '[{"role": "user"}]'])
def test_what_is_no_conversation_changes_nothing(tmp_path, text):
    path = tmp_path / "talk.json"
    path.write_text(text)
    conversation = Conversation("brief")
    conversation.ask("one")
    before = conversation.messages
    with pytest.raises(CoreError, match=r"CORE-C184.*no conversation"):
        conversation.load(path)
    with pytest.raises(CoreError, match=r"CORE-C184.*cannot be read"):
        conversation.load(tmp_path / "nowhere")
    with pytest.raises(CoreError, match=r"CORE-C184.*cannot be written"):
        conversation.save(Files(), tmp_path / "nowhere" / "talk.json", "m")
    assert conversation.messages == before


def test_a_conversation_of_bare_messages_is_read_too(tmp_path):
    path = tmp_path / "talk.json"
    path.write_text('[{"role": "user", "content": "x"}]')
    conversation = Conversation("brief")
    conversation.load(path)
    assert conversation.messages == [{"role": "user", "content": "x"}]


def test_stats_are_counted_shown_and_switched(session, capsys):
    session.take("one")
    session.take("/stats")
    assert "1 answers, 0 tokens read, 1 tokens generated" in capsys.readouterr().err
    session.take("/stats on")
    session.take("two")
    assert "[first token after" in capsys.readouterr().err
    session.take("/stats off")
    capsys.readouterr()
    session.take("three")
    assert capsys.readouterr().err == ""


def test_unknown_commands_and_help(session, model, capsys):
    session.take("/sytem x")
    assert "Did you mean '/system'?" in capsys.readouterr().err
    session.take("/help")
    shown = capsys.readouterr().err
    assert all(f"/{name}" in shown for name in slash.COMMANDS) and model.asked == []


@pytest.mark.parametrize("word", ["/exit", "/quit", "/bye"])
def test_leaving(stub, monkeypatch, word):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"one\n{word}\ntwo\n"))
    assert main(["chat", "--url", stub.url]) == 0
    assert len(stub.bodies) == 1


def test_an_error_ends_what_a_program_writes(stub, monkeypatch, capsys):
    stub.failures = 1
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    assert main(["chat", "--url", stub.url]) == 1
    assert len(stub.bodies) == 1 and "CORE-S191" in capsys.readouterr().err


# -- the loop of a user ------------------------------------------------------------------------------------------------


def typed(*events):
    """Lines that come from a user: texts, and exceptions for keys."""
    left = iter(events)

    def read():
        event = next(left, EOFError)
        if isinstance(event, str):
            return event
        raise event

    return SimpleNamespace(read=read)


def test_ctrl_c_twice_leaves_and_a_message_between_does_not(session, model):
    assert session.loop(typed("one", KeyboardInterrupt, "two", KeyboardInterrupt, KeyboardInterrupt, "three")) == 0
    assert [asked[-1][1] for asked in model.asked] == ["one", "two"]


def test_ctrl_c_after_one_that_stopped_an_answer_leaves(session, model):
    def stopped(messages, params):
        yield StreamedDelta("par")
        raise KeyboardInterrupt

    model.chat = stopped
    assert session.loop(typed("one", KeyboardInterrupt, "two")) == 0
    assert [turn["content"] for turn in session.conversation.turns] == ["one", "par"]


def test_ctrl_c_after_a_retry_that_was_stopped_leaves(session, model):
    session.take("one")

    def stopped(messages, params):
        yield StreamedDelta("par")
        raise KeyboardInterrupt

    model.chat = stopped
    assert session.loop(typed("/retry", KeyboardInterrupt, "two")) == 0
    assert [turn["content"] for turn in session.conversation.turns] == ["one", "par"]


def test_an_error_does_not_end_the_chat_of_a_user(session, model, capsys):
    model.failing = True
    assert session.loop(typed("one", "/load /nowhere/at/all", KeyboardInterrupt)) == 0
    err = capsys.readouterr().err
    assert "core: CORE-S190 gone." in err and "CORE-C184" in err


# -- lines -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("one\n\n  two  \n", ["one", "two"]),
        ("one \\\ntwo\\\n three\nfour", ["one \ntwo\n three", "four"]),
        ('"""one\n\n  two\n"""\nthree\n', ["one\n\n  two", "three"]),
        ('"""\ndef f():\n    return 1"""\n', ["def f():\n    return 1"]),
        ('"""one line"""\n', ["one line"]),
        ('"""no end\nat all', ["no end\nat all"]),
        ('""""""\nafter nothing\n', ["after nothing"]),
        ("ends in the middle\\", ["ends in the middle"]),
    ],
)
def test_messages_of_several_lines(monkeypatch, text, messages):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    lines, read = Lines("> "), []
    with pytest.raises(EOFError):
        while True:
            read.append(lines.read())
    assert read == messages


def test_bytes_that_are_no_text_are_read_all_the_same(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("a\udcff\udcfeb\n"))  # as Python reads them
    assert Lines("> ").read() == "a\ufffd\ufffdb"
    monkeypatch.setattr("sys.stdin", io.StringIO("\udcff"))
    assert talk.quick_text(SimpleNamespace(quick=talk.STDIN)) == "\ufffd"


def test_the_history_is_kept_for_its_user_alone(monkeypatch, tmp_path):
    written = []
    editing = SimpleNamespace(
        read_history_file=lambda path: (_ for _ in ()).throw(FileNotFoundError),
        set_history_length=written.append,
        write_history_file=lambda path: path.write_text("x"),
    )
    monkeypatch.setattr("core_plugin_chat.lines._editing", lambda: editing)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    path = tmp_path / "state" / "history"
    Lines("> ", path).close()
    assert written == [1000] and stat.S_IMODE(path.stat().st_mode) == 0o600
    Lines("> ").close()
    blocked = tmp_path / "file"
    blocked.write_text("")
    Lines("> ", blocked / "history").close()  # cannot be written, and nobody is told


# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "there"), [("run", "core run [MODEL] "), ("run-batch", "core run-batch [--FLAG")])
def test_help_shows_the_engines_flags_without_an_address(capsys, command, there):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and there in shown and "--max-model-len" in shown
    assert "--host" not in shown and "--port" not in shown


def test_what_is_imported_to_begin_with():
    import subprocess
    import sys

    code = "import sys; from core.cli.main import main; main(sys.argv[1:])\n"
    watch = f"import atexit, sys; atexit.register(lambda: print(sorted(sys.modules), file=sys.stderr))\n{code}"
    for words in (["--help"], ["chat", "--help"], ["complete", "--help"]):
        result = subprocess.run([sys.executable, "-c", watch, *words], capture_output=True, text=True, timeout=60)
        loaded = {name.partition(".")[0] for name in names_in(result.stderr)}
        assert not loaded & {"torch", "transformers", "rich", "httpx", "fastapi", "uvicorn"}, words


def names_in(text):
    return json.loads(text.strip().splitlines()[-1].replace("'", '"'))
