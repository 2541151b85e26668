"""The gateway's HTTP interface as values: its routes, who may use them from where, and their description."""
