"""`core.api.serving` over a generation front end: what every API does between its own body and its own answer."""
