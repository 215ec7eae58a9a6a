"""Measurements of what the design promises. Ratios within one run; never timed tests."""
