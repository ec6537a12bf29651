"""The HTTP server: OpenAI-compatible routes over a generation front end."""
