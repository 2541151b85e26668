"""The logic of a request: typed values, pure policies, settings, and the builder of the graph."""
