"""What an error of a file says behind the file's name, without the system's number and the name once more."""

from __future__ import annotations


def said_of(error: Exception) -> str:
    """``error`` may also tell what is wrong with a file's content."""
    if isinstance(error, IsADirectoryError):
        return "it is a directory; expected a file"
    return (isinstance(error, OSError) and error.strerror) or str(error)
