"""List the models of MODEL.BACKBONE.NAME, how their text towers are encoded, and their tags.

``hf-hub:<repository>`` and ``local-dir:<folder>`` name any other model in open_clip's format.
"""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

from tabulate import tabulate

from coop_cmp import CONFIGS
from coop_cmp.config.defaults import OPENAI_NAMES
from coop_cmp.config.preprocessing import SCHEMES

HEADER = ["model", "text tower", "image", "tokens", "needs", "weights"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a name; default: all")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    import open_clip  # loads torch, too slow for --help

    from coop_cmp.clip import add_models

    add_models(CONFIGS / "models")
    names = [*(name for name in OPENAI_NAMES if "/" in name), *open_clip.list_models()]
    names += [name for name in args.names if name.startswith(SCHEMES)]
    parts = [part.lower() for part in args.names]
    wanted = [name for name in names if not parts or any(p in name.lower() for p in parts)]
    rows = [_row(name) for name in wanted]
    print(tabulate(rows, HEADER, disable_numparse=True))
    ways = [row[1].split(":")[0] for row in rows]
    print(f"{len(rows)} models: {ways.count('shared')} shared, {ways.count('full')} full")
    return 0


def _row(name: str) -> list[str]:
    import open_clip

    from coop_cmp.clip.load import model_config
    from coop_cmp.clip.tower import planned_way

    config = model_config(name)
    text: dict[str, Any] = config.get("text_cfg", {})
    size = config.get("vision_cfg", {}).get("image_size", 224)
    way, reason = planned_way(config)
    hugging_face = text.get("hf_model_name") or text.get("hf_tokenizer_name")
    missing = hugging_face and importlib.util.find_spec("transformers") is None
    needs = "transformers" + (" (not installed)" if missing else "") if hugging_face else ""
    tags = open_clip.list_pretrained_tags_by_model(OPENAI_NAMES.get(name, name))
    shown = f"{way}: {reason}" if reason else way
    return [name, shown, str(size), str(text.get("context_length", 77)), needs, ", ".join(tags)]
