from __future__ import annotations

import sys
from pathlib import Path

# The shared suites lie beside the tests, the engines' helpers with their unit tests.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "engines"))
