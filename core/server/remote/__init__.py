"""Tools of tool servers, which the server calls on a model's behalf: who may be called, and how long it may take."""
