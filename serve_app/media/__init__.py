"""What clients send besides text: what it is, how large it is, and where it may be fetched from."""
