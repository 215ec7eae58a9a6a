"""Texts from outside that try to be more than text."""

EVIL = "A <script>alert(\"x\")</script> & 'y' title"
REASON = "The engine miscounted; <b>mended</b> before a cell was measured."
