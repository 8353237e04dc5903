"""One module per board: which panels it has, and what they ask."""
