"""``python -m coop_cmp.cli.settings [KEY]``: the settings below KEY, as docs/settings.md has them."""

from __future__ import annotations

import sys
from pathlib import Path

from coop_cmp.config import SETTINGS, read_declarations
from coop_cmp.config.describe import page

if __name__ == "__main__":
    package = Path(__file__).resolve().parents[1]
    places = (package, package / "losses", Path("trainers"), Path("datasets"))
    read_declarations(*places)
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    print(page({key: s for key, s in SETTINGS.items() if key.startswith(wanted)}))
