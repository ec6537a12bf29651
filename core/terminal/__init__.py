"""What the command line shows: tables, the start-up report, answers, progress."""
