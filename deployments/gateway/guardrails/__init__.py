"""Runs the guards of the settings: functions, HTTP calls and the mask."""
