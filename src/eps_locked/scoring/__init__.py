"""How well a metric predicts the tensor G[b, i -> j]: documents in, score documents out.

Pure: no file is opened here, no model called, no clock read. docs/scoring.md
specifies every file and every number.
"""
