"""The logic of a request: typed values, pure policies and settings. ``app.py`` only names the graph's
builder, for config files."""
