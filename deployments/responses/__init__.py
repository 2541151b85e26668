"""Responses and conversations that clients come back to."""
