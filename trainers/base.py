"""What the methods share: a frozen CLIP with a learned classifier, and its training step."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from dassl.metrics import compute_accuracy
from dassl.optim import build_lr_scheduler, build_optimizer
from dassl.utils import load_pretrained_weights
from torch import Tensor, nn

from coop_cmp.clip import (
    LoadedCLIP,
    PromptLayout,
    TextEncoder,
    check_preprocessing,
    check_text_encoder,
    load_clip,
)
from coop_cmp.config import check_cfg, flatten
from coop_cmp.devices import activation_budget, choose_device, suit_convolutions, to_device
from coop_cmp.errors import UserError
from coop_cmp.runs.identity import identify, read_identity
from coop_cmp.runs.store import lookup

from .checkpoint import check_checkpoint, learned_digest, load_learned
from .fit import Fit, gradient_ratio
from .stored import FeatureTrainer
from .trackers import RunWriter

SAME = 1 - 1e-5  # the cosine from which on the text features of two classes are the same


@dataclass
class Step:
    """What a method computes for one training batch.

    Attributes:
        logits: Those that predict, [B, C].
        label: Class indices [B].
        losses: The terms of the loss by name, weighted: their sum is the loss.
        image: Normalised image features [B, E].
        text: The text features of the logits, [C, E], or [B, C, E] if every image has its own.
        trained_logits: The logits [B, C] inside the cross-entropy; by default those that predict.
    """

    logits: Tensor
    label: Tensor
    losses: dict[str, Tensor]
    image: Tensor
    text: Tensor
    trained_logits: Tensor | None = None

    @property
    def inside(self) -> Tensor:
        return self.logits if self.trained_logits is None else self.trained_logits


class PromptedCLIP(nn.Module):
    """CLIP with a frozen image tower and text features that depend on learned prompts.

    A child implements :meth:`encode_text`; ``prompt_learner`` holds all that is learned. A child
    whose image features depend on what is learned says so with ``frozen_image_tower = False``.
    """

    frozen_image_tower: ClassVar[bool] = True
    text_passes: ClassVar[int] = 1  # whose activations a step holds at the same time
    prompt_learner: nn.Module
    logit_scale: Tensor

    def __init__(self, cfg: Any, clip: LoadedCLIP) -> None:
        super().__init__()
        self.visual = clip.model.visual
        self.logit_scale = clip.model.logit_scale
        sigmoid = cfg.MODEL.SCORES == "sigmoid"  # a softmax would not change with the bias
        self.logit_bias = getattr(clip.model, "logit_bias", None) if sigmoid else None
        if sigmoid and self.logit_bias is None:
            raise UserError(
                f"MODEL.SCORES sigmoid is for models with a logit bias, such as SigLIP's; "
                f"{clip.name} has none"
            )
        node = cfg.MODEL
        budget = node.TEXT_BUDGET_MB << 20 or activation_budget(choose_device(cfg))
        self.text_encoder = TextEncoder(
            clip.model, node.TEXT_ENCODER, budget // self.text_passes, node.COMPILE
        )
        self.fixed_text: Tensor | None = None

    def encode_image(self, image: Tensor) -> Tensor:
        """Normalised image features [B, E] of images [B, 3, H, W]."""
        with torch.no_grad():
            features = self.visual(image.to(self.text_encoder.dtype))
        return F.normalize(features.float(), dim=-1)

    def image_features(self, image: Tensor) -> Tensor:
        """The same for images or for stored features [B, E], which are taken as they are."""
        return image if image.dim() == 2 else self.encode_image(image)

    def encode_text(self) -> Tensor:
        """Text features [C, E], not normalised."""
        raise NotImplementedError

    def encode_prompts(self, layout: PromptLayout, context: Tensor | None = None) -> Tensor:
        """Normalised text features [C, E], or [G, C, E] of G contexts, in single precision."""
        return F.normalize(self.text_encoder(layout, context).float(), dim=-1)

    def text_features(self) -> Tensor:
        """Normalised text features [C, E] in single precision."""
        return F.normalize(self.encode_text().float(), dim=-1)

    def similarity(self, image_features: Tensor, text_features: Tensor) -> Tensor:
        """Scaled products [B, C], with the model's bias for a sigmoid, in single precision.

        The features are [B, E] and [C, E], or [B, C, E] if every image has its own text.
        """
        with torch.autocast(image_features.device.type, enabled=False):
            scale = self.logit_scale.float().exp()
            if text_features.dim() == 3:
                logits = scale * (text_features @ image_features[..., None])[..., 0]
            else:
                logits = scale * image_features @ text_features.t()
            return logits if self.logit_bias is None else logits + self.logit_bias.float()

    def text_for(self, image_features: Tensor) -> Tensor:
        """Normalised text features [C, E], or [B, C, E] if every image has its own."""
        return self.text_features() if self.fixed_text is None else self.fixed_text

    def classify(self, image_features: Tensor) -> Tensor:
        """Logits [B, C] in single precision for normalised image features [B, E]."""
        return self.similarity(image_features, self.text_for(image_features))

    def classifier(self) -> Tensor | None:
        """The text features that serve a whole evaluation; None if they depend on the image."""
        return self.text_features()

    def losses(self, image_features: Tensor, label: Tensor) -> Step:
        """The forward pass of a training batch: normalised features [B, E] and labels [B]."""
        text = self.text_for(image_features)
        logits = self.similarity(image_features, text)
        losses = {"loss_ce": F.cross_entropy(logits, label)}
        return Step(logits, label, losses, image_features, text)

    def forward(self, image: Tensor) -> Tensor:
        """Logits [B, C] for images [B, 3, H, W] or their stored features [B, E]."""
        return self.classify(self.image_features(image))


class PromptTrainer(FeatureTrainer):
    """Trains the prompt learner of a :class:`PromptedCLIP` in fp32, amp or fp16.

    A child names its config node and makes its model.

    Attributes:
        folders: Where checkpoints are: the folder of our own, then those of other codebases.
        unused: Beginnings of the names that other codebases store and nobody needs.
        term_loss: The name of an added term among the losses.
        cross_entropy: The name of its cross-entropy among the losses; None for a method without
            one, which takes no further term.
    """

    node: str
    folders: ClassVar[tuple[str, ...]] = ("prompt_learner",)
    unused: ClassVar[tuple[str, ...]] = ()
    cross_entropy: ClassVar[str | None] = "loss_ce"
    term_loss: ClassVar[str] = ""
    model: Any  # a PromptedCLIP; Dassl's own trainers have other models

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        """Build the method's model for a list of classes."""
        raise NotImplementedError

    @property
    def learner(self) -> nn.Module:
        """The part of the model that is trained and saved."""
        return self.model.prompt_learner

    @property
    def precision(self) -> Any:
        """``fp32``, ``amp`` or ``fp16``."""
        return self.cfg.TRAINER[self.node].PREC

    def check_cfg(self, cfg: Any) -> None:
        super().check_cfg(cfg)
        check_cfg(cfg)

    def build_model(self) -> None:
        cfg, self.fit = self.cfg, Fit()
        self.device = choose_device(cfg)
        backbone = cfg.MODEL.BACKBONE
        print(f"Loading CLIP (backbone: {backbone.NAME})")
        clip = load_clip(backbone.NAME, backbone.WEIGHTS, self.precision)
        if tuple(cfg.INPUT.SIZE) != clip.image_size:
            raise UserError(
                f"INPUT.SIZE is {tuple(cfg.INPUT.SIZE)}, but {clip.name} takes {clip.image_size}"
            )
        for line in check_preprocessing(cfg.INPUT, clip.name, clip.weights):
            print(line)
        self.weights = {"name": clip.weights, "digest": clip.digest}
        self.model = self.make_model(clip, self.dm.dataset.classnames)
        if cfg.MODEL.INIT_WEIGHTS:
            self.start_from(cfg.MODEL.INIT_WEIGHTS)
        self.model.to(self.device)
        check_text_encoder(clip, self.model.text_encoder)
        suit_convolutions(self.model.visual, self.device)
        self.before_training(clip)
        if self.precision == "fp16" and cfg.MODEL.LEARNABLE_DTYPE == "model":
            self.learner.half()
        self.trainable = sum(p.numel() for p in self.learner.parameters() if p.requires_grad)
        if not self.trainable:
            return
        print(f"Trainable parameters: {self.trainable:,}")
        scaled = self.precision == "amp" and self.device.type == "cuda"
        self.optim = fused(self.make_optimizer()) if scaled else self.make_optimizer()
        self.sched = build_lr_scheduler(self.optim, cfg.OPTIM)
        self.register_model(self.folders[0], self.learner, self.optim, self.sched)
        self.scaler = torch.amp.GradScaler("cuda", enabled=scaled)

    def before_training(self, clip: LoadedCLIP) -> None:
        """Hook: use the loaded model before anything is learned."""

    def start_from(self, path: str) -> None:
        """Load what a file has of what is learned; a file that has nothing of it is refused."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            load_pretrained_weights(self.learner, path)
        if any("Cannot load" in str(line.message) for line in told):
            raise UserError(
                f"MODEL.INIT_WEIGHTS: {path} holds nothing that {type(self).__name__} learns with "
                "these settings; name a checkpoint of the same method"
            )

    def make_optimizer(self) -> torch.optim.Optimizer:
        return build_optimizer(self.learner, self.cfg.OPTIM)

    def encode_image(self, image: Tensor) -> Tensor:
        """Features [B, E] of images [B, 3, H, W], as in a test."""
        with self.autocast():
            return self.model.encode_image(to_device(image, self.device))

    def autocast(self) -> AbstractContextManager:
        """Mixed precision if the method asks for it: fp16 on a GPU, bf16 on a CPU."""
        dtype = torch.bfloat16 if self.device.type == "cpu" else torch.float16
        return torch.autocast(self.device.type, dtype=dtype, enabled=self.precision == "amp")

    def forward_backward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        return self.take_step(self.compute_losses(batch))

    def compute_losses(self, batch: dict[str, Any]) -> Step:
        """The forward pass of a training batch: its logits and the named terms of the loss."""
        image, label = self.parse_batch_train(batch)
        with self.autocast():
            return self.model.losses(self.model.image_features(image), label)

    def take_step(self, step: Step) -> dict[str, Tensor]:
        """Minimise the sum of the losses; what it returns stays on the device until printed."""
        loss = reduce(torch.add, step.losses.values())
        accuracy = compute_accuracy(step.logits, step.label)[0]
        self.record_fit(step, accuracy)
        self.update(loss)
        if self.batch_idx + 1 == self.num_batches:
            self.update_lr()
        shown = {"loss": loss, "acc": accuracy}
        if len(step.losses) > 1:
            shown |= step.losses
        return {name: value.detach() for name, value in shown.items()}

    def record_fit(self, step: Step, accuracy: Tensor) -> None:
        """Measure what the results say about training; nothing is read on the host.

        ``wrong`` is the share of samples that the penalised logits misclassify, ``accuracy`` that
        of the right ones in the last tenth of the epochs, ``gradient``, at each print and in every
        epoch, the term's :func:`gradient_ratio`.
        """
        penalised, right = self.penalised_logits(step), accuracy
        if penalised is not step.logits:
            right = compute_accuracy(penalised, step.label)[0]
        self.fit.add("wrong", 1 - right / 100)
        if self.epoch >= self.max_epoch - max(1, self.max_epoch // 10):
            self.fit.add("accuracy", accuracy / 100)
        every = min(self.cfg.TRAIN.PRINT_FREQ, self.num_batches)
        if self.term_loss and (self.batch_idx + 1) % every == 0:
            term = step.losses[self.term_loss]
            self.fit.add("gradient", gradient_ratio(term, step.logits, step.inside, step.label))

    def own_state(self) -> dict[str, Any]:
        """What a checkpoint holds besides, so that a run that resumes measures all its steps."""
        return {"fit": self.fit.state(), "epochs": self.max_epoch}

    def restore_own_state(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`own_state`; a longer run has another last tenth of its epochs."""
        forget = () if state["epochs"] == self.max_epoch else ("accuracy",)
        self.fit.restore(state["fit"], forget)

    def write_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None) -> None:
        """Keep the running means of an epoch, the last of which are its own, for the results."""
        super().write_scalar(tag, scalar_value, global_step)
        if tag.startswith("train/") and tag != "train/lr":
            self.fit.note(tag.removeprefix("train/"), self.epoch, float(scalar_value))

    def penalised_logits(self, step: Step) -> Tensor:
        """The logits [B, C] that a term added to the loss is computed from."""
        return step.logits

    def update(self, loss: Tensor) -> None:
        """One optimiser step, with the gradients scaled under fp16 autocast."""
        self.detect_anomaly(loss)
        self.optim.zero_grad()
        self.scaler.scale(loss).backward()
        self.before_step()
        self.scaler.step(self.optim)
        self.scaler.update()

    def init_writer(self, log_dir: str) -> None:
        """Start what ``LOGGER`` names, in place of TensorBoard alone."""
        if self.__dict__.get("_writer") is None:
            names = lookup(self.cfg, "LOGGER", ("tensorboard",))
            self._writer = RunWriter(names, log_dir, identify(self.cfg).settings)

    @property
    def run(self) -> str:
        """The digest of the run, which its checkpoints hold."""
        return identify(flatten(self.cfg)).digest

    def check_checkpoint(self, directory: str, fpath: str, checkpoint: Any) -> None:
        check_checkpoint(fpath, checkpoint, directory)
        found = read_identity(directory) if self.cfg.RESUME else None
        changes = found.differences(identify(flatten(self.cfg))) if found else []
        if other := [change for change in changes if not change.startswith("OPTIM.")]:
            raise UserError(
                f"--resume {directory}: that run has other settings ({other[0]}); one that goes on "
                "elsewhere may change those of OPTIM alone"
            )
        if changes:
            self.dm.dataset.notes.append(f"continues a run in which {'; '.join(changes)}")

    def before_step(self) -> None:
        """Hook: change the gradients before the optimiser uses them."""

    def parse_batch_train(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        return to_device(batch["img"], self.device), to_device(batch["label"], self.device)

    parse_batch_test = parse_batch_train

    def test(self, split: str | None = None) -> float:
        """Evaluate; the classifier's text features are computed once, not for every batch."""
        self.evaluator.facts = self.facts(split)
        with torch.no_grad(), self.autocast():
            self.model.fixed_text = self.model.classifier()
        if self.model.fixed_text is not None:
            text = self.model.fixed_text.float().cpu()
            self.evaluator.facts["text_features"] = text
            self.evaluator.facts["notes"] += same_classes(text, self.dm.dataset.classnames)
        try:
            return super().test(split)
        finally:
            self.model.fixed_text = None

    def model_inference(self, input: Tensor) -> Tensor:
        with self.autocast():
            return self.model(input)

    def facts(self, split: str | None = None) -> dict[str, Any]:
        """What is stored beside the metrics of a split."""
        return {
            "weights": self.weights,
            "checkpoint": learned_digest(self.learner) if self.trainable else None,
            "images": self.image_names(split),
            "device": self.device,
            "precision": self.precision,
            "fit": self.fit.means() | ({"curves": curves} if (curves := self.fit.curves()) else {}),
            "sizes": {"train": len(self.dm.dataset.train_x), "trainable": self.trainable},
            "notes": [*getattr(self.dm.dataset, "notes", [])],
        }

    def image_names(self, split: str | None = None) -> list[str]:
        """The names of the images of a split, in the order in which they are tested."""
        dataset = self.dm.dataset
        is_val = (split or self.cfg.TEST.SPLIT) == "val" and self.val_loader is not None
        return [
            dataset.image_name(item.impath) for item in (dataset.val if is_val else dataset.test)
        ]

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load what was learned, whatever class list it was learned on.

        Checkpoints of other codebases with the same method are understood as well.
        """
        if not directory:
            print("Note that load_model() is skipped as no pretrained model is given")
            return
        # A run that continues one in another directory may have other settings, and its best model.
        own = not self.cfg.RESUME
        load_learned(self.learner, directory, epoch, self.folders, self.unused, own)


def same_classes(text: Tensor, names: Sequence[str]) -> list[str]:
    """A note on classes whose text features [..., C, E] are the same to the model."""
    text = F.normalize(text.reshape(-1, *text.shape[-2:])[0], dim=-1)
    alike = (text @ text.t()).fill_diagonal_(0).amax(1) > SAME
    found = [name for name, same in zip(names, alike.tolist(), strict=True) if same]
    if not found:
        return []
    shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
    return [f"{len(found)} of {len(names)} classes have the text features of another: {shown}"]


def fused(optim: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimiser in one kernel, which looks for infinite gradients itself, if there is one.

    Otherwise the gradient scaler reads them on the host in every step. Momentum starts at 0, which
    makes the same first step: a fused SGD that skips its first step, as a scaler may ask for, would
    start the next one from whatever is in memory.
    """
    if "fused" not in optim.defaults or optim.defaults.get("dampening"):
        return optim
    groups = [{**group, "fused": True, "foreach": False} for group in optim.param_groups]
    kind: Any = type(optim)
    made = kind(groups, fused=True)
    for group in made.param_groups:
        for parameter in group["params"] if group.get("momentum") else ():
            made.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return made
