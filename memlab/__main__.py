"""``python -m memlab`` is ``memlab``."""

import sys

from memlab.cli import main

sys.exit(main())
