"""The owner of what people say of answers."""
