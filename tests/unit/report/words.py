"""Texts from outside that try to be more than text."""

EVIL = "A <script>alert(\"x\")</script> & 'y' title"
REASON = "The engine miscounted; <b>mended</b> before a cell was measured."
RECIPIENT = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kudk2xrxsdu5v9y"
