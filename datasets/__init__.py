"""The data sets, one file each; importing this package registers all of them in Dassl.

A file that is put here registers its data set without any other change.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
