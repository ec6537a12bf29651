"""core beside other engines on one machine, in turn: `make bench` and `make bench-peers`."""
