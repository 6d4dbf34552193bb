"""``python -m tests.site [NOTEBOOK ...]``: builds the site with the panels of these notebooks, or of all; checks it."""

import sys
from pathlib import Path

from tests.notebooks.cells import NOTEBOOKS
from tests.site.accessibility import findings
from tests.site.build import build
from tests.site.check import faults
from tests.site.panels import in_a_process
from tests.site.used import unusable

TRIED = ("00_start_here", "06_gradient_checkpointing", "10_lean_optimizers")


if __name__ == "__main__":
    live = [Path(name).resolve() for name in sys.argv[1:]] or NOTEBOOKS
    site = build(live)
    pages = {site / "notebooks" / f"{path.stem}.html": path for path in live if path.stem in TRIED}
    for page, notebook in pages.items():
        in_a_process("tests.site.points", page, notebook)
    found = [*faults(site), *unusable(list(pages)), *findings(site)]
    print("\n".join([*found, f"The site is {site}/index.html."]))
    sys.exit(1 if found else 0)
