"""``python -m bench.growth``: how the cost of each kind of work grows with its amount."""
