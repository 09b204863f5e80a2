"""The signs of the embedded model and data: which there are and what they are called."""

from __future__ import annotations

import unicodedata

DIGITS = "0123456789"
LATIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghijmnqrtu"
ACCENTED = "àáâãäåçèéêëñòóôõöøùúûüāąćčęńšśžżßæþðđħł"
GREEK = "ΓΔΘΞΠΣΦΨΩαβγδεζηθλξπστφχψω"
CYRILLIC = "БДЖЗИЙЛЦЧШЩЪЫЬЭЮЯЂЉЊ"
SYMBOLS = "!#$%&()*+/<=>?@[]{}~¢£¥§©®¶¿÷±€←↑→↓∂∑√∞∫≈≠≤≥◊†‡™"
KINDS = (DIGITS, LATIN, ACCENTED, GREEK, CYRILLIC, SYMBOLS)
SIGNS = "".join(KINDS)
DROPPED = ("digit ", "latin ", "letter ", "with ", "n-ary ", "greek small ", " above")


def sign_name(sign: str) -> str:
    """Return a short Unicode name: ``seven``, ``capital a``, ``a grave``, ``cyrillic zhe``."""
    name = unicodedata.name(sign).lower().replace("diaeresis", "umlaut")
    if sign == "λ":  # Unicode spells it otherwise
        return "lambda"
    for word in DROPPED:
        name = name.replace(word, "")
    if sign in LATIN:
        return name.replace("small", "lowercase")
    return name.replace("small ", "").replace("cyrillic capital", "cyrillic")
