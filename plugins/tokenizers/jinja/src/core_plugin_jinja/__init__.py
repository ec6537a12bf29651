"""Chat templates in Jinja, in a sandbox."""
