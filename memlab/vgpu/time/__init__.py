"""The time of a step on a card: the least it can take, and an estimate."""
