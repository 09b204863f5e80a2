"""Train and test a method with CoOp's command line; the program is coop_cmp/cli/train.py."""

import gc
import sys

try:
    gc.disable()  # what is imported stays, and looking for garbage among it takes a second
    from coop_cmp.cli.train import run
except ModuleNotFoundError as error:
    print(
        f"error: {error}; activate the environment (. .venv/bin/activate, which any of the scripts "
        "makes) or install it: pip install -r requirements.txt",
        file=sys.stderr,
    )
    sys.exit(2)

gc.freeze()
gc.enable()

if __name__ == "__main__":
    sys.exit(run())
