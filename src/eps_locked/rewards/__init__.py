"""Reward models, behind one protocol: in this process, over the network, or as a table."""
