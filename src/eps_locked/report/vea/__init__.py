"""The page of study ``vea``: its own sections, set in the frame that every page shares."""
