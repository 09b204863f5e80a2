"""What all command lines share: one line for a user's mistake, and quiet ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from coop_cmp.errors import UserError, exit_code, one_line


def guarded(main: Callable[[Sequence[str] | None], int]) -> int:
    """Run a command line, with one line for a user's mistake and a word on Ctrl-C."""
    try:
        return main(None)
    except BrokenPipeError:
        # Whoever read the output, such as head, has seen enough; what is left has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (UserError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return exit_code(error)
    except KeyboardInterrupt:
        print("\nstopped; the same command continues where this one ended", file=sys.stderr)
        return 130
