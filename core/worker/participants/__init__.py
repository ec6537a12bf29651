"""Worker halves of participants. The worker names none of them; `core.worker.assembly` makes them."""
