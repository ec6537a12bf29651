"""Samples, which a plugin gives the kit to work on: the module `conformance.py` in its package, with `samples()`.

```python
# acme_core_parser/conformance.py
from core_testing.conformance import ParserSample

def samples():
    yield ParserSample("one call", "<call>f {}</call>", events=(ToolStart(0, "f"), ToolArguments(0, "{}"), ToolEnd(0)))
```

The module is imported by the kit only. It may import torch and whatever the plugin itself needs. Samples of the kinds
that compute on a device are in `device_samples`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.parsers import ParseEvent
    from core.api.templates import TemplateInput


@dataclass(frozen=True)
class Sample:
    """Base of all samples.

    Attributes:
        name: Says in a few words what the sample is, for messages.
        plugin: Descriptor it is for, if the package has several of the kind.
    """

    name: str
    plugin: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class ParserSample(Sample):
    """A model's message and what a tool parser makes of it.

    Attributes:
        text: The message.
        events: What is expected, neighbours of one kind joined.
        tools: The request's tools, as OpenAI's `tools` list.
        in_reasoning: Whether the prompt opened thinking.
        response_template: What the checkpoint says of the format, for a parser that goes by it.
    """

    text: str
    events: Sequence[ParseEvent]
    tools: Sequence[Mapping[str, Any]] = ()
    in_reasoning: bool = False
    response_template: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class OptionsSample(Sample):
    """Options to run a plugin with, besides its defaults or where an option has none: a tiny capacity, a file.

    Attributes:
        options: Makes the plugin's options from a directory of the kit's, which is empty.
    """

    options: Callable[[Path], Mapping[str, Any]]


@dataclass(frozen=True)
class SourceSample(Sample):
    """A reference for a model source.

    Attributes:
        make: Puts a model into a directory (or finds one) and returns the reference that leads to it.
        missing: A reference that is this source's business, but leads nowhere; found out without a network.
        environment: Variables of the process in which the reference is resolved, made from the same directory after
            `make`; `PYTHONPATH` is put in front of what is there. Without it, it is resolved in the kit's process.
    """

    make: Callable[[Path], str] | None = None
    missing: str | None = None
    environment: Callable[[Path], Mapping[str, str]] | None = None


@dataclass(frozen=True)
class ModelSample(Sample):
    """A tiny configuration of an architecture that transformers implements.

    Attributes:
        architecture: As in the descriptor.
        model_type: transformers' name of the configuration.
        config: What differs from the kit's tiny decoder (`core_testing.tinymodels`), or from its tiny encoder
            (`core_testing.tinyencoders`) if the descriptor's tasks are not to generate.
    """

    architecture: str
    model_type: str
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TransferSample(Sample):
    """How an update reaches a weight-transfer plugin.

    Attributes:
        send: Sends tensors (name -> tensor) as a version; gets an empty directory, the tensors and the version, and
            returns the `info` that `begin` takes.
        missing: An `info` that leads to nothing.
    """

    send: Callable[[Path, Mapping[str, Tensor], str], Mapping[str, Any]]
    missing: Mapping[str, Any]


@dataclass(frozen=True)
class GrammarSample(Sample):
    """A grammar and texts that do and do not belong to it. The kit's tokenizer knows every byte.

    Attributes:
        kind: Of `core.api.GRAMMAR_KINDS`.
        value: The grammar.
        sentences: Whole texts of the grammar.
        others: Texts that are none, nor the beginning of one that ends there.
        bad: Values of this kind that are no grammars.
    """

    kind: str
    value: str
    sentences: Sequence[str] = ()
    others: Sequence[str] = ()
    bad: Sequence[str] = ()


@dataclass(frozen=True)
class RouteSample(Sample):
    """A request to a plugin's endpoint and what is answered. The kit's engine says "kit" to every prompt.

    Attributes:
        path: With its parameters filled in.
        body: A JSON object, or None.
        form: What is sent as a form instead: texts, and files as bytes, by name.
        status: Of the answer.
        answer: Bytes that the answer's body contains.
    """

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    answer: bytes = b""
    form: Mapping[str, str | bytes] | None = None


@dataclass(frozen=True)
class SocketSample(Sample):
    """Messages over a plugin's web socket, and what comes back. The kit's engine says "kit" to every prompt.

    Attributes:
        path: With its parameters filled in.
        messages: Sent one behind the other once the socket is open.
        answer: Bytes that the messages which come back contain, texts as UTF-8 and all joined; or the refusal's body.
        status: 101: it is opened; else that of the refusal.
        code: That the plugin closes it with; None: the client leaves, once it has `answer`.
    """

    path: str
    messages: Sequence[str | bytes] = ()
    answer: bytes = b""
    query: Mapping[str, str] = field(default_factory=dict)
    status: int = 101
    code: int | None = None


@dataclass(frozen=True)
class IOSample(Sample):
    """Data for an I/O processor. The kit's model gives any prompt some vector, equal prompts equal ones.

    Attributes:
        data: What a client sends.
        accepts: Says whether an answer, read from JSON, is right; None takes any.
        refused: Data that must be refused.
        others: Further data, for requests beside this one.
        model_config: Of the checkpoint that the processor is made for.
        labels: Classes of the model; without them it embeds, with 16 numbers.
    """

    data: Any
    accepts: Callable[[Any], bool] | None = None
    refused: Sequence[Any] = ()
    others: Sequence[Any] = ()
    model_config: Mapping[str, Any] = field(default_factory=dict)
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class TemplateSample(Sample):
    """A conversation and what a chat template makes of it.

    Attributes:
        source: The template; it shows what users say as they say it.
        chat: The conversation, with a message of a user whose content is a text.
        text: The prompt, more than one character long.
        tokens: Named special tokens.
        reads: Variables that the template reads, or some of them.
        refused: Conversations that it refuses.
        broken: Sources that are none.
        slow: A source that would take minutes for `chat`; empty where the language has nothing that takes long.
    """

    source: str
    chat: TemplateInput
    text: str
    tokens: Mapping[str, Any] = field(default_factory=dict)
    reads: frozenset[str] = frozenset()
    refused: Sequence[TemplateInput] = ()
    broken: Sequence[str] = ()
    slow: str = ""


@dataclass(frozen=True)
class ToolServerSample(Sample):
    """A server for a tool-server client to speak to.

    Attributes:
        serve: Starts it, yields its address, and ends it.
        calls: Name of a tool, arguments, a text that the result contains, and whether the tool says that it failed; at
            least one.
        slow: A tool and arguments with which it takes at least half a minute, unless it is cancelled.
    """

    serve: Callable[[], AbstractContextManager[str]]
    calls: Sequence[tuple[str, Mapping[str, Any], str, bool]]
    slow: tuple[str, Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class FlagSample(Sample):
    """A command line that was written for another server.

    Attributes:
        words: What is typed.
        means: What core reads in its place; None: it is refused. Values of flags stand as words of their own.
    """

    words: Sequence[str]
    means: Sequence[str] | None


@dataclass(frozen=True)
class CommandSample(Sample):
    """A call of a command.

    Attributes:
        arguments: What is typed behind `core NAME`; made from a directory of the kit's, in which it then runs.
        status: Its exit status.
        says: Text that its standard output contains.
        model: Whether it needs a model: the kit's tiny Llama, of which transformers knows the architecture, is then the
            folder `model` of the directory, with a tokenizer that knows every byte.
    """

    arguments: Callable[[Path], Sequence[str]]
    status: int = 0
    says: str = ""
    model: bool = False
