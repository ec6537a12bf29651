"""Tables and progress, as the command line shows them."""
