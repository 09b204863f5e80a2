"""What the methods share: a frozen CLIP with a learned classifier, and its training step."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from dassl.engine import TrainerX
from dassl.metrics import compute_accuracy
from dassl.optim import build_lr_scheduler, build_optimizer
from dassl.utils import load_checkpoint
from torch import Tensor, nn

from coop_cmp.clip import LoadedCLIP, TextEncoder, load_clip
from coop_cmp.errors import UserError

PRECISIONS = ("fp32", "amp", "fp16")


class PromptedCLIP(nn.Module):
    """CLIP with a frozen image tower and text features that depend on learned prompts.

    A child implements :meth:`encode_text`; ``prompt_learner`` holds all that is learned.
    """

    prompt_learner: nn.Module
    logit_scale: Tensor

    def __init__(self, cfg: Any, clip: LoadedCLIP) -> None:
        super().__init__()
        self.visual = clip.model.visual
        self.logit_scale = clip.model.logit_scale
        self.text_encoder = TextEncoder(
            clip.model, cfg.MODEL.TEXT_ENCODER, cfg.MODEL.TEXT_BUDGET_MB << 20
        )
        self.fixed_text: Tensor | None = None

    def encode_image(self, image: Tensor) -> Tensor:
        """Normalised image features [B, E] of images [B, 3, H, W]."""
        with torch.no_grad():
            features = self.visual(image.to(self.text_encoder.dtype))
        return F.normalize(features.float(), dim=-1)

    def encode_text(self) -> Tensor:
        """Text features [C, E], not normalised."""
        raise NotImplementedError

    def classify(self, image_features: Tensor) -> Tensor:
        """Logits [B, C] in single precision for normalised image features [B, E]."""
        text = self.fixed_text if self.fixed_text is not None else self.text_features()
        with torch.autocast(image_features.device.type, enabled=False):
            return self.logit_scale.float().exp() * image_features.float() @ text.t()

    def text_features(self) -> Tensor:
        """Normalised text features [C, E] in single precision."""
        return F.normalize(self.encode_text().float(), dim=-1)

    def losses(self, image: Tensor, label: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits [B, C] and the named terms of the training loss."""
        logits = self.classify(self.encode_image(image))
        return logits, {"loss_ce": F.cross_entropy(logits, label)}

    def forward(self, image: Tensor) -> Tensor:
        """Logits [B, C] for images [B, 3, H, W]."""
        return self.classify(self.encode_image(image))


class PromptTrainer(TrainerX):
    """Trains the prompt learner of a :class:`PromptedCLIP` in fp32, amp or fp16.

    A child names its config node and makes its model.
    """

    node: str
    model: Any  # a PromptedCLIP; Dassl's own trainers have other models

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        """Build the method's model for a list of classes."""
        raise NotImplementedError

    @property
    def precision(self) -> Any:
        """``fp32``, ``amp`` or ``fp16``."""
        return self.cfg.TRAINER[self.node].PREC

    def check_cfg(self, cfg: Any) -> None:
        precision = cfg.TRAINER[self.node].PREC
        if precision not in PRECISIONS:
            raise UserError(
                f"TRAINER.{self.node}.PREC must be one of {', '.join(PRECISIONS)}, "
                f'got "{precision}"'
            )
        if cfg.MODEL.LEARNABLE_DTYPE not in ("fp32", "model"):
            raise UserError(
                'MODEL.LEARNABLE_DTYPE must be "fp32" or "model", '
                f'got "{cfg.MODEL.LEARNABLE_DTYPE}"'
            )

    def build_model(self) -> None:
        cfg = self.cfg
        self.device = choose_device(cfg)
        backbone = cfg.MODEL.BACKBONE
        print(f"Loading CLIP (backbone: {backbone.NAME})")
        clip = load_clip(backbone.NAME, backbone.WEIGHTS, self.precision)
        if tuple(cfg.INPUT.SIZE) != clip.image_size:
            raise UserError(
                f"INPUT.SIZE is {tuple(cfg.INPUT.SIZE)}, but {clip.name} takes {clip.image_size}"
            )
        self.weights = clip.weights
        self.model = self.make_model(clip, self.dm.dataset.classnames).to(self.device)
        learner = self.model.prompt_learner
        if self.precision == "fp16" and cfg.MODEL.LEARNABLE_DTYPE == "model":
            learner.half()
        self.trainable = sum(p.numel() for p in learner.parameters() if p.requires_grad)
        self.scaler = None
        if not self.trainable:
            return
        print(f"Trainable parameters: {self.trainable:,} ({learner_names(self.model)})")
        self.optim = build_optimizer(learner, cfg.OPTIM)
        self.sched = build_lr_scheduler(self.optim, cfg.OPTIM)
        self.register_model("prompt_learner", learner, self.optim, self.sched)
        if self.precision == "amp" and self.device.type == "cuda":
            self.scaler = grad_scaler(self.device)

    def autocast(self) -> AbstractContextManager:
        """Mixed precision if the method asks for it: fp16 on a GPU, bf16 on a CPU."""
        dtype = torch.bfloat16 if self.device.type == "cpu" else torch.float16
        return torch.autocast(self.device.type, dtype=dtype, enabled=self.precision == "amp")

    def forward_backward(self, batch: dict[str, Any]) -> dict[str, float]:
        image, label = self.parse_batch_train(batch)
        with self.autocast():
            logits, terms = self.model.losses(image, label)
        loss = torch.stack(list(terms.values())).sum()
        self.update(loss)
        if self.batch_idx + 1 == self.num_batches:
            self.update_lr()
        summary = {"loss": loss.item(), "acc": compute_accuracy(logits, label)[0].item()}
        if len(terms) > 1:
            summary.update({name: term.item() for name, term in terms.items()})
        return summary

    def update(self, loss: Tensor) -> None:
        """One optimiser step, with the gradients scaled under fp16 autocast."""
        if self.scaler is None:
            self.model_backward_and_update(loss)
            return
        self.detect_anomaly(loss)
        self.optim.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optim)
        self.scaler.update()

    def parse_batch_train(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        return batch["img"].to(self.device), batch["label"].to(self.device)

    def test(self, split: str | None = None) -> float:
        """Evaluate; the classifier's text features are computed once, not for every batch."""
        self.evaluator.facts = self.facts()
        with torch.no_grad(), self.autocast():
            self.model.fixed_text = self.model.text_features()
        try:
            return super().test(split)
        finally:
            self.model.fixed_text = None

    def model_inference(self, input: Tensor) -> Tensor:
        with self.autocast():
            return self.model(input)

    def facts(self) -> dict[str, Any]:
        """What the evaluator writes beside the metrics."""
        return {
            "weights": self.weights,
            "sizes": {"train": len(self.dm.dataset.train_x), "trainable": self.trainable},
            "notes": list(getattr(self.dm.dataset, "notes", [])),
        }

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load what was learned, whatever class list it was learned on.

        Buffers that belong to a class list, as the CoOp codebase stores them, are left out.
        """
        if not directory:
            print("Note that load_model() is skipped as no pretrained model is given")
            return
        name = f"model.pth.tar-{epoch}" if epoch else newest(Path(directory, "prompt_learner"))
        path = Path(directory, "prompt_learner", name)
        if not path.is_file():
            raise UserError(f'no model at "{path}": check --model-dir and --load-epoch')
        checkpoint = load_checkpoint(str(path))
        learner = self.model.prompt_learner
        state = {
            key: value
            for key, value in checkpoint["state_dict"].items()
            if "token_prefix" not in key and "token_suffix" not in key
        }
        own = learner.state_dict()
        wrong = [k for k in own if k not in state or state[k].shape != own[k].shape]
        wrong += [k for k in state if k not in own]
        if wrong:
            raise UserError(
                f'"{path}" is not a prompt of {type(self).__name__} with these settings: {wrong[0]}'
                f" is {shape_of(state, wrong[0])}, expected {shape_of(own, wrong[0])}"
            )
        learner.load_state_dict(state)
        print(f'Loaded "{path}" (epoch {checkpoint["epoch"]})')


def choose_device(cfg: Any) -> torch.device:
    """The configured device, or the best there is (the CPU if USE_CUDA is off)."""
    if not cfg.DEVICE:
        if cfg.USE_CUDA and torch.cuda.is_available():
            return torch.device("cuda")
        has_mps = cfg.USE_CUDA and torch.backends.mps.is_available()
        return torch.device("mps" if has_mps else "cpu")
    try:
        device = torch.device(cfg.DEVICE)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f'device "{cfg.DEVICE}" cannot be used: {reason}') from error
    return device


def grad_scaler(device: torch.device) -> Any:
    """A gradient scaler; torch before 2.3 has it in another place."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device.type)
    return torch.cuda.amp.GradScaler()


def newest(folder: Path) -> str:
    """The file name of the best model if there is one, else of the last epoch."""
    if (folder / "model-best.pth.tar").is_file():
        return "model-best.pth.tar"
    epochs = [
        int(path.name.rsplit("-", 1)[1])
        for path in folder.glob("model.pth.tar-*")
        if path.name.rsplit("-", 1)[1].isdigit()
    ]
    return f"model.pth.tar-{max(epochs)}" if epochs else "model.pth.tar"


def learner_names(model: PromptedCLIP) -> str:
    """The names of the learned tensors, for the log."""
    return ", ".join(name for name, _ in model.prompt_learner.named_parameters())


def shape_of(state: dict[str, Tensor], key: str) -> str:
    """A tensor's shape as text, or ``absent``."""
    return str(list(state[key].shape)) if key in state else "absent"
