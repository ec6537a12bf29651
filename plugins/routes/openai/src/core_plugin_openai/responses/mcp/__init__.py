"""Tools of MCP servers in the Responses API: the server lists them, calls them, and lets the model go on."""
