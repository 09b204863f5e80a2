"""``python -m coop_cmp.cli.settings [KEY]``: the settings below KEY, as in docs/settings.md."""

from __future__ import annotations

import sys

import coop_cmp.datasets
import coop_cmp.trainers  # noqa: F401  (both declare their settings)
from coop_cmp.config import SETTINGS
from coop_cmp.config.describe import page

if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    print(page({key: s for key, s in SETTINGS.items() if key.startswith(wanted)}))
