"""Where accounts are kept: the contract, and the SQLite file."""
