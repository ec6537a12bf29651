"""Answers: grammars that force them, parsers that read them, the tool calls and thinking in them."""
