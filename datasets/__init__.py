"""The data sets, one file each; importing this package registers all of them in Dassl.

The package runs in place, from the folder of ``train.py``, as in every CoOp-family repository.
"""

from importlib import import_module
from importlib.util import find_spec

MODULES = ("digits",)

for _name in MODULES:
    if find_spec(f"{__name__}.{_name}"):
        import_module(f"{__name__}.{_name}")
