"""What of a finished run may be shown to everybody: written to a folder, checked, pushed."""
