"""The Ray Serve classes. They do the I/O; what to do is decided in ``serve_app``."""
