"""How long a step takes at least on a card, and how long probably."""
