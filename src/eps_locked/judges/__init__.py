"""Judges: one file per way of asking, and the strict reading of what they answer."""
