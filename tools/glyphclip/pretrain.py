"""Pre-trains GlyphCLIP with CLIP's symmetric contrastive loss (Radford et al., 2021).

Run by ``scripts/pretrain_glyphclip.sh``. A caption is a positive for every picture of the batch
that it describes: same sign, and all its adjectives are true of the picture. A batch holds several
pictures of each sign, so that the adjectives matter, as words around a name do to CLIP.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

import open_clip
import torch
import torch.nn.functional as F
from open_clip.model import CLIP
from safetensors.torch import save
from torch import Tensor

from coop_cmp.datasets.signs import DIGITS, SIGNS, sign_name
from coop_cmp.files import atomic_write
from tools.glyphclip.captions import caption, vocabulary_texts
from tools.glyphclip.render import ATTRIBUTES, Renderer, build_bank

CONFIG = Path(__file__).parents[2] / "configs" / "models" / "GlyphCLIP.json"
MAX_LOGIT_SCALE = math.log(100.0)
REPEATS = 2  # pictures of a sign in a batch
ADJECTIVES_SAID = (0, 0, 1, 1, 2, 3)


class Vocabulary:
    """CLIP's tokeniser restricted to the tokens that the captions use, renumbered from 0."""

    def __init__(self) -> None:
        self.tokenizer = open_clip.get_tokenizer("ViT-B-32")
        self.rows = torch.unique(self.tokenizer(vocabulary_texts()))

    def __call__(self, texts: list[str]) -> Tensor:
        """Tokens [N, L] as indices into ``rows``, cut after the longest text's end token."""
        tokens = torch.searchsorted(self.rows, self.tokenizer(texts))
        # The end token has the highest number, before and after the renumbering.
        return tokens[:, : int(tokens.argmax(1).max()) + 1]


def encode_text(model: CLIP, tokens: Tensor) -> Tensor:
    """Unit text features [N, D] of cut tokens [N, L]; causal, so the cut changes nothing."""
    length = tokens.shape[1]
    x = model.token_embedding(tokens) + model.positional_embedding[:length]
    x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask[:length, :length]))
    return F.normalize(x[torch.arange(len(x)), tokens.argmax(1)] @ model.text_projection, dim=-1)


def normalise(images: Tensor) -> Tensor:
    """Images [N, 3, H, W] in [0, 1] to CLIP's normalised channels."""
    mean = torch.tensor(open_clip.OPENAI_DATASET_MEAN).view(3, 1, 1)
    std = torch.tensor(open_clip.OPENAI_DATASET_STD).view(3, 1, 1)
    return (images - mean) / std


def contrastive_loss(logits: Tensor, positive: Tensor) -> Tensor:
    """Symmetric cross-entropy of logits [N, T]: any of the positives [N, T] will do."""
    loss = torch.zeros(())
    for z, mask in ((logits, positive), (logits.t(), positive.t())):
        right = z.masked_fill(~mask, -math.inf).logsumexp(1)
        loss = loss + (z.logsumexp(1) - right).mean() / 2
    return loss


def sample_signs(n: int, generator: torch.Generator) -> Tensor:
    """Signs [N]: n / REPEATS different ones, each REPEATS times; the digits always."""
    others = len(DIGITS) + torch.randperm(len(SIGNS) - len(DIGITS), generator=generator)
    return torch.cat([torch.arange(len(DIGITS)), others])[: n // REPEATS].repeat(REPEATS)


def describe(signs: Tensor, flags: Tensor, rng: random.Random) -> tuple[list[str], Tensor]:
    """One caption for each picture, without repeats, and which pictures each is true of.

    Returns:
        T texts and the positive mask [N, T].
    """
    said: dict[str, tuple[int, list[int]]] = {}
    for sign, true in zip(signs.tolist(), flags.tolist(), strict=True):
        known = [a for a in range(1, len(ATTRIBUTES)) if true[a]]
        chosen = rng.sample(known, min(len(known), rng.choice(ADJECTIVES_SAID)))
        said[caption(sign, [ATTRIBUTES[a] for a in chosen], rng)] = (sign, chosen)
    wanted = torch.zeros(len(said), len(ATTRIBUTES))
    for row, (_, chosen) in zip(wanted, said.values(), strict=True):
        row[chosen] = 1
    missing = (1 - flags.float()) @ wanted.t()
    same = signs[:, None] == torch.tensor([sign for sign, _ in said.values()])
    return list(said), same & (missing == 0)


@torch.no_grad()
def zero_shot(
    model: CLIP, images: Tensor, labels: Tensor, words: Vocabulary
) -> tuple[float, float]:
    """Accuracy and mean confidence on pictures of signs with one plain template."""
    model.eval()
    text = encode_text(model, words([f"a photo of a {sign_name(sign)}." for sign in SIGNS]))
    image = model.encode_image(normalise(images), normalize=True)
    confidence, guess = (model.logit_scale.exp() * image @ text.t()).softmax(1).max(1)
    model.train()
    return (guess == labels).float().mean().item(), confidence.mean().item()


def rate_factor(step: int, steps: int, warmup: int = 100) -> float:
    """Linear warm-up to 1, then half a cosine to zero."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def build_model(words: Vocabulary) -> CLIP:
    """GlyphCLIP with a token table of the used rows only."""
    config = json.loads(CONFIG.read_text(encoding="utf-8"))
    config["text_cfg"]["vocab_size"] = len(words.rows)
    return CLIP(**config)


class Optimizer:
    """Muon (Jordan et al., 2024) for the matrices of the blocks, AdamW for everything else."""

    def __init__(self, model: CLIP, peak: float) -> None:
        named = list(model.named_parameters())
        inner = [p for name, p in named if "resblocks" in name and p.ndim == 2]
        tables = [p for name, p in named if "resblocks" not in name and p.ndim >= 2]
        vectors = [p for _, p in named if p.ndim < 2]
        groups = [{"params": tables, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0}]
        self.parts: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Muon(inner, weight_decay=0.01), 10 * peak),
            (torch.optim.AdamW(groups, betas=(0.9, 0.98)), peak),
        ]

    def step(self, loss: Tensor, factor: float) -> None:
        """Descend, at this share of the highest rates."""
        for part, peak in self.parts:
            for group in part.param_groups:
                group["lr"] = factor * peak
            part.zero_grad()
        loss.backward()
        for part, _ in self.parts:
            part.step()


def train(steps: int, batch: int, peak: float, seed: int) -> dict[str, Tensor]:
    """Train from scratch, print one line per 100 steps, return the tensors to store."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    words = Vocabulary()
    model = build_model(words)
    optimizer = Optimizer(model, peak)
    renderer = Renderer(build_bank(), seed)
    held_out_bank = build_bank(held_out=True)
    held_out_labels = held_out_bank.signs.unique().repeat(4)
    held_out = Renderer(held_out_bank, seed + 1)(held_out_labels).images
    size = sum(p.numel() for p in model.parameters())
    print(
        f"seed {seed}, batch {batch}, lr {peak}, torch {torch.__version__}: {size} parameters, "
        f"{len(words.rows)} tokens, {len(renderer.bank.signs)} glyphs",
        flush=True,
    )
    start = time.time()
    for step in range(steps):
        signs = sample_signs(batch, renderer.generator)
        images, flags = renderer(signs)
        texts, positive = describe(signs, flags, rng)
        image_features = model.encode_image(normalise(images), normalize=True)
        logits = model.logit_scale.exp() * image_features @ encode_text(model, words(texts)).t()
        loss = contrastive_loss(logits, positive)
        optimizer.step(loss, rate_factor(step, steps))
        with torch.no_grad():
            model.logit_scale.clamp_(0, MAX_LOGIT_SCALE)
        if (step + 1) % 100 == 0 or step + 1 == steps:
            accuracy, confidence = zero_shot(model, held_out, held_out_labels, words)
            print(
                f"step {step + 1}/{steps} loss {loss.item():.4f} held-out fonts {accuracy:.1%} "
                f"gap {100 * (confidence - accuracy):+.1f} "
                f"logit scale {model.logit_scale.exp().item():.2f} {time.time() - start:.0f} s",
                flush=True,
            )
    return model.state_dict() | {"token_embedding.rows": words.rows}


def main() -> None:
    """Read the arguments, train, store the weights in half precision."""
    parser = argparse.ArgumentParser(description="Pre-train GlyphCLIP.")
    parser.add_argument("--output", type=Path, required=True, help="file for the weights")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.steps < 1 or args.batch < 2 or not 0 < args.lr < math.inf or args.seed < 0:
        parser.error("--steps takes 1 or more, --batch 2 or more, --lr above 0, --seed 0 or more")
    torch.set_num_threads(1)  # so that the number of cores does not change the sums
    torch.use_deterministic_algorithms(True)
    tensors = train(args.steps, args.batch, args.lr, args.seed)
    stored = {k: v.half() if v.is_floating_point() else v for k, v in tensors.items()}
    with atomic_write(args.output) as file:
        file.write(save({k: v.contiguous() for k, v in stored.items()}))


if __name__ == "__main__":
    main()
