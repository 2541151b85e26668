"""Autoscaling policies on a simulated fleet under a recorded trace, in virtual time.

The command is ``scripts/simulate_autoscaling.py``; ``make bench`` compares the policies as well.
"""
