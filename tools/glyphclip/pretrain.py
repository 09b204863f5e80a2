"""Pre-trains GlyphCLIP with CLIP's symmetric contrastive loss (Radford et al., 2021).

Run by ``scripts/pretrain_glyphclip.sh``. A caption is a positive for every picture of the batch
that it describes: same character, and its adjective, if any, is true of the picture.
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

from coop_cmp.files import atomic_write
from tools.glyphclip.captions import DIGITS, caption, vocabulary_texts
from tools.glyphclip.render import ATTRIBUTES, CHARACTERS, Renderer, build_bank

CONFIG = Path(__file__).parents[2] / "configs" / "models" / "GlyphCLIP.json"
MAX_LOGIT_SCALE = math.log(100.0)


class Vocabulary:
    """CLIP's tokeniser restricted to the tokens that the captions use, renumbered from 0."""

    def __init__(self) -> None:
        self.tokenizer = open_clip.get_tokenizer("ViT-B-32")
        self.rows = torch.unique(self.tokenizer(vocabulary_texts()))
        self.cache: dict[str, Tensor] = {}

    def __call__(self, texts: list[str]) -> Tensor:
        """Tokens [N, L] as indices into ``rows``, cut after the longest text's end token."""
        for text in texts:
            if text not in self.cache:
                self.cache[text] = torch.searchsorted(self.rows, self.tokenizer([text])[0])
        tokens = torch.stack([self.cache[text] for text in texts])
        # The end token has the highest number, before and after the renumbering.
        return tokens[:, : int(tokens.argmax(1).max()) + 1]


def encode_text(model: CLIP, tokens: Tensor) -> Tensor:
    """Unit text features [N, D] of cut tokens [N, L]; causal, so the cut changes nothing."""
    length = tokens.shape[1]
    x = model.token_embedding(tokens) + model.positional_embedding[:length]
    x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask[:length, :length]))
    return F.normalize(x[torch.arange(len(x)), tokens.argmax(1)] @ model.text_projection, dim=-1)


def normalise(images: Tensor) -> Tensor:
    """Grey images [N, 1, H, W] in [0, 1] to CLIP's three normalised channels."""
    mean = torch.tensor(open_clip.OPENAI_DATASET_MEAN).view(3, 1, 1)
    std = torch.tensor(open_clip.OPENAI_DATASET_STD).view(3, 1, 1)
    return (images - mean) / std


def contrastive_loss(logits: Tensor, positive: Tensor) -> Tensor:
    """Symmetric cross-entropy of logits [N, T], spread evenly over the positives [N, T]."""
    loss = torch.zeros(())
    for z, mask in ((logits, positive), (logits.t(), positive.t())):
        target = mask / mask.sum(1, keepdim=True)
        loss = loss - (target * z.log_softmax(1)).sum(1).mean() / 2
    return loss


def sample_characters(n: int, generator: torch.Generator) -> Tensor:
    """Characters [N]: one half digits and one half letters, each as evenly as n allows."""
    half = n // 2
    digits = torch.arange(half) % 10
    letters = 10 + torch.randperm(52, generator=generator).repeat(n // 52 + 1)[: n - half]
    return torch.cat([digits, letters])


def describe(characters: Tensor, flags: Tensor, rng: random.Random) -> tuple[list[str], Tensor]:
    """One caption for each picture, without repeats, and which pictures each is true of.

    Returns:
        T texts and the positive mask [N, T].
    """
    owner: dict[str, tuple[int, int]] = {}
    for character, true in zip(characters.tolist(), flags.tolist(), strict=True):
        known = [a for a in range(1, len(ATTRIBUTES)) if true[a]]
        attribute = rng.choice(known) if rng.random() < 0.5 else 0
        text = caption(CHARACTERS[character], ATTRIBUTES[attribute], rng)
        owner[text] = (character, attribute)
    said = torch.tensor(list(owner.values()))
    positive = (characters[:, None] == said[:, 0]) & flags[:, said[:, 1]]
    return list(owner), positive.float()


@torch.no_grad()
def digit_accuracy(model: CLIP, images: Tensor, labels: Tensor, words: Vocabulary) -> float:
    """Zero-shot accuracy on pictures of digits with one plain template."""
    model.eval()
    text = encode_text(model, words([f"a photo of the digit {name}." for name in DIGITS]))
    image = model.encode_image(normalise(images), normalize=True)
    model.train()
    return ((image @ text.t()).argmax(1) == labels).float().mean().item()


def learning_rate(step: int, steps: int, peak: float, warmup: int = 100) -> float:
    """Linear warm-up, then half a cosine to zero."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def build_model(words: Vocabulary) -> CLIP:
    """GlyphCLIP with a token table of the used rows only."""
    config = json.loads(CONFIG.read_text(encoding="utf-8"))
    config["text_cfg"]["vocab_size"] = len(words.rows)
    return CLIP(**config)


def build_optimizer(model: CLIP) -> torch.optim.Optimizer:
    """AdamW that spares biases, norms and the logit scale from weight decay."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98))


def train(steps: int, batch: int, peak: float, seed: int) -> dict[str, Tensor]:
    """Train from scratch, print one line per 100 steps, return the tensors to store."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    words = Vocabulary()
    model = build_model(words)
    optimizer = build_optimizer(model)
    renderer = Renderer(build_bank(), seed)
    held_out_labels = torch.arange(10).repeat(50)
    held_out = Renderer(build_bank(held_out=True), seed + 1)(held_out_labels).images
    size = sum(p.numel() for p in model.parameters())
    print(
        f"seed {seed}, batch {batch}, lr {peak}, torch {torch.__version__}: {size} parameters, "
        f"{len(words.rows)} tokens, {len(renderer.bank.characters)} glyphs",
        flush=True,
    )
    start = time.time()
    for step in range(steps):
        characters = sample_characters(batch, renderer.generator)
        images, flags = renderer(characters)
        texts, positive = describe(characters, flags, rng)
        image_features = model.encode_image(normalise(images), normalize=True)
        logits = model.logit_scale.exp() * image_features @ encode_text(model, words(texts)).t()
        loss = contrastive_loss(logits, positive)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, peak)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, MAX_LOGIT_SCALE)
        if (step + 1) % 100 == 0 or step + 1 == steps:
            accuracy = digit_accuracy(model, held_out, held_out_labels, words)
            print(
                f"step {step + 1}/{steps} loss {loss.item():.4f} held-out fonts {accuracy:.1%} "
                f"logit scale {model.logit_scale.exp().item():.2f} {time.time() - start:.0f} s",
                flush=True,
            )
    return model.state_dict() | {"token_embedding.rows": words.rows}


def main() -> None:
    """Read the arguments, train, store the weights in half precision."""
    parser = argparse.ArgumentParser(description="Pre-train GlyphCLIP.")
    parser.add_argument("--output", type=Path, required=True, help="file for the weights")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1.5e-3)
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
