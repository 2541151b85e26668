"""What the numbers say to change, each with its evidence and the expected effect."""
