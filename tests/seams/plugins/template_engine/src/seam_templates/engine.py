"""`%WORD` writes a word before each message; words in capitals go wrong in their way."""

from core.api import RequestError


class Lines:
    def compile(self, source, context):
        word = source.strip().removeprefix("%")
        if " " in word:
            raise ValueError("a word has no blanks")
        if word == "BROKEN":
            raise RuntimeError("no compiler today")
        return object() if word == "ODD" else Template(word)


class Template:
    content_format = "string"
    variables = frozenset({"messages", "mood"})

    def __init__(self, word):
        self._word = word

    def pieces(self, chat):
        if self._word == "FAILING":
            raise KeyError("content")
        if self._word == "CHOOSY":
            raise ValueError("not in this mood")
        if self._word == "STRICT":
            raise RequestError("no tools here", param="tools", code="odd")
        mood = chat.variables.get("mood", "")
        return [f"{self._word} {mood}{message['content']}\n" for message in chat.messages]
