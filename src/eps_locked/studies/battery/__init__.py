"""The `battery` study: one set of checks for every model, each against its own base."""
