"""The gateway's HTTP interface as values: its routes, who may use them, and their description."""
