"""Metrics: what they see, how their materials are exported, and the box they run in."""
