"""``python -m coop_cmp.cli`` is ``coop-cmp``, where that is not on the path."""

import sys

from coop_cmp.cli import main

sys.exit(main())
