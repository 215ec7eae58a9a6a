"""The group ``drift``: what speaks of drift studies and of tables like theirs."""

from __future__ import annotations

from eps_locked.cli.drift import drift
from eps_locked.cli.drift_labels import label_sheet_command, labels_command
from eps_locked.cli.drift_power import power_command

__all__ = ["drift"]

drift.add_command(power_command)
drift.add_command(label_sheet_command)
drift.add_command(labels_command)
