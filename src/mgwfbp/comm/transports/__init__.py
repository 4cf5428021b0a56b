"""How a slice of the arena travels between ranks, one file a kind."""
