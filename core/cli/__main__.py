"""`python -m core.cli` is `core`."""

import sys

from core.cli.start import main

sys.exit(main())
