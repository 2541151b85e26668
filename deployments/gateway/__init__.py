"""The gateway: HTTP in, an answer from the first tier that has one out."""
