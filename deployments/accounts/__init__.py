"""The owner of keys that are made at run time, and of what is counted for them."""
