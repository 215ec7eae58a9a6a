"""An example metric for eps_locked; see metric.py."""
