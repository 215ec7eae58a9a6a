"""The `drift` study: a calibrated instrument for how a model's dispositions move."""
