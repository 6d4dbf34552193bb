"""Pictures that explain one thing, drawn from what a run took, so that none can say what no run did."""

from memlab.drawings.adapter import adapter
from memlab.drawings.bill import bill
from memlab.drawings.bits import bits
from memlab.drawings.block import block
from memlab.drawings.buckets import buckets
from memlab.drawings.formats import formats
from memlab.drawings.host import host
from memlab.drawings.kept import kept
from memlab.drawings.ladder import ladder
from memlab.drawings.lives import lives
from memlab.drawings.methods import Method, methods
from memlab.drawings.operations import operations
from memlab.drawings.parts import parts
from memlab.drawings.per_weight import per_weight
from memlab.drawings.ring import ring
from memlab.drawings.schedule import schedule
from memlab.drawings.scores import scores
from memlab.drawings.shards import shards
from memlab.drawings.spans import spans
from memlab.drawings.split import split
from memlab.drawings.updates import updates
from memlab.drawings.waiting import waiting
from memlab.segment_plots import segment_map

__all__ = [
    "Method",
    "adapter",
    "bill",
    "bits",
    "block",
    "buckets",
    "formats",
    "host",
    "kept",
    "ladder",
    "lives",
    "methods",
    "operations",
    "parts",
    "per_weight",
    "ring",
    "schedule",
    "scores",
    "segment_map",
    "shards",
    "spans",
    "split",
    "updates",
    "waiting",
]
