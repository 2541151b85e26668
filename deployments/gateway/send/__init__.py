"""To a member and back: attempts, continuation, relay.

An attempt that fails before the first byte leads to one at another member: at most ``gateway.max_attempts``
in all, and two if the members broke on the request. A kept connection that ends without a byte was closed
by the member while it was idle: that is no attempt, and the request goes to the same member over a new
connection (``deployments.wire``).

Every stream that can be continued asks its engine for token ids, which the client does not see. The
continuation is a text completion from the prompt's tokens and those already sent, rewritten into the format
of the broken stream.
"""
