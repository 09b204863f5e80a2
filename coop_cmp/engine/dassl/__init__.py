"""A clean implementation of the public API of Dassl that CoOp-family code builds on.

Same module paths, names, hook order, printed lines and file layout as Dassl 0.6.3, made for current
torch. Methods and data sets of domain adaptation and semi-supervised learning are not included.
"""

__version__ = "0.1.0"
