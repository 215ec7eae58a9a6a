"""The page of study ``drift``: its own sections, set in the frame that every page shares."""
