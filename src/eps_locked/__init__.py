"""A research harness that refuses: what a frozen, signed plan does not name does not run."""

__version__ = "0.1.0"
