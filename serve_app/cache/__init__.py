"""The response cache as policy: what may be shared with whom, what a request asks of it, what is a hit."""
