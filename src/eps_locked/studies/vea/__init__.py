"""The `vea` study: does a reward model dislike the idea of being evaluated, or only one cue?"""
