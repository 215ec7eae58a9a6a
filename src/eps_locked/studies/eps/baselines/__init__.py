"""The shipped baselines of an ``eps`` study (phase P3): predictors from the base model alone."""
