"""Client of MCP servers, whose tools core calls while it answers."""
