"""`python -m kerasbert.cli`."""

import sys

from kerasbert.cli import main

sys.exit(main())
