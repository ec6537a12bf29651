"""What an answer says: forms that force it, parsers that read it, and the tool calls and thoughts that come of it."""
