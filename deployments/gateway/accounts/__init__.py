"""What a gateway does with keys that are made at run time, and with what is counted for them."""
