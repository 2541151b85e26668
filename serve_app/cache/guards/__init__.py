"""Guards of the cache's decision: why a cached answer to a near text must not be reused.

Two texts may be near in the embedding space and still ask for different things: another number, a "not", two
names exchanged. Each guard compares two analysed texts for one such difference.
"""
