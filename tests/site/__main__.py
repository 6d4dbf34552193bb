"""``python -m tests.site [NOTEBOOK ...]``: builds the site with the panels of these notebooks, or of all; checks it."""

import sys
from pathlib import Path

from tests.notebooks.cells import NOTEBOOKS
from tests.site.accessibility import findings
from tests.site.build import build
from tests.site.check import faults

if __name__ == "__main__":
    site = build([Path(name).resolve() for name in sys.argv[1:]] or NOTEBOOKS)
    found = [*faults(site), *findings(site)]
    print("\n".join([*found, f"The site is {site}/index.html."]))
    sys.exit(1 if found else 0)
