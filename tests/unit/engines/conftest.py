from __future__ import annotations

import sys
from pathlib import Path

# Helpers beside the tests are plain modules, and importlib mode puts no folder on the path.
sys.path.insert(0, str(Path(__file__).parent))
