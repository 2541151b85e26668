"""CPU binding for engines without a GPU."""
