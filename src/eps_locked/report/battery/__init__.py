"""The page of study ``battery``, and its tables for a terminal."""
