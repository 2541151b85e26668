"""What is behind ``make serve``."""
