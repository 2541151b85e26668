"""What a gateway does with responses that are kept."""
