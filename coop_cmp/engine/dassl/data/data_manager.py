"""From a config to data loaders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from dassl.utils.images import ImageCache
from PIL import Image
from tabulate import tabulate
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from yacs.config import CfgNode

from .datasets import Datum, build_dataset
from .samplers import build_sampler
from .transforms import INTERPOLATION_MODES, build_transform

Transform = Callable[[Image.Image], Any]


class _Loader(DataLoader[dict[str, Any]]):
    def check_worker_number_rationality(self) -> None:
        """Say nothing: the user chose the number of workers."""


class DatasetWrapper(Dataset[dict[str, Any]]):
    """Reads and transforms the items of a list.

    An item is a dict with ``label``, ``domain``, ``impath``, ``index`` and ``img``; with a list of
    transforms also ``img2``, ``img3``, ...; with DATALOADER.RETURN_IMG0 ``img0``, the image without
    augmentation. DATALOADER.K_TRANSFORMS > 1 makes each training ``img`` a list of views.
    """

    def __init__(
        self,
        cfg: CfgNode,
        data_source: Sequence[Datum],
        transform: Transform | Sequence[Transform] | None = None,
        is_train: bool = False,
    ) -> None:
        self.cfg = cfg
        self.data_source = data_source
        self.transform = transform
        self.is_train = is_train
        self.k_tfm = cfg.DATALOADER.K_TRANSFORMS if is_train else 1
        self.return_img0 = cfg.DATALOADER.RETURN_IMG0
        budget = cfg.DATALOADER.get("CACHE_MB", 0) << 20 if is_train else 0
        processes = max(1, cfg.DATALOADER.NUM_WORKERS)
        self.read = ImageCache(budget // processes, cfg.INPUT.get("UPRIGHT", False))
        if self.k_tfm > 1 and transform is None:
            raise ValueError(
                f"DATALOADER.K_TRANSFORMS: cannot transform the image {self.k_tfm} times because "
                "there is no transform"
            )
        steps: list[Any] = [
            T.Resize(cfg.INPUT.SIZE, interpolation=INTERPOLATION_MODES[cfg.INPUT.INTERPOLATION]),
            T.ToTensor(),
        ]
        if "normalize" in cfg.INPUT.TRANSFORMS:
            steps.append(T.Normalize(mean=cfg.INPUT.PIXEL_MEAN, std=cfg.INPUT.PIXEL_STD))
        self.to_tensor = T.Compose(steps)

    def __len__(self) -> int:
        return len(self.data_source)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        item = self.data_source[idx]
        output = {
            "label": item.label,
            "domain": item.domain,
            "impath": item.impath,
            "index": idx,
        }
        img0 = self.read(item.impath)
        if self.transform is None:
            output["img"] = img0
        elif isinstance(self.transform, list | tuple):
            for i, transform in enumerate(self.transform):
                output["img" if i == 0 else f"img{i + 1}"] = self._transform_image(transform, img0)
        else:
            output["img"] = self._transform_image(self.transform, img0)  # type: ignore[arg-type]
        if self.return_img0:
            output["img0"] = self.to_tensor(img0)
        return output

    def _transform_image(self, transform: Transform, img0: Image.Image) -> Any:
        views = [transform(img0) for _ in range(self.k_tfm)]
        return views[0] if len(views) == 1 else views


def build_data_loader(
    cfg: CfgNode,
    sampler_type: str = "SequentialSampler",
    data_source: Any = None,
    batch_size: int = 64,
    n_domain: int = 0,
    n_ins: int = 2,
    tfm: Any = None,
    is_train: bool = True,
    dataset_wrapper: Any = None,
) -> DataLoader[dict[str, Any]]:
    """Make a loader for a list of items.

    A training loader leaves out the last batch if it is not full (unless it is the only one). The
    workers start anew each epoch, which gives them seeds from the main process: that is what makes
    a resumed run see the same images as an undisturbed one.
    """
    part = "training" if is_train else "validation or test"
    if not data_source:
        raise ValueError(f"{cfg.DATASET.NAME} has no {part} data; check --root")
    sampler = build_sampler(
        sampler_type,
        cfg=cfg,
        data_source=data_source,
        batch_size=batch_size,
        n_domain=n_domain,
        n_ins=n_ins,
    )
    wrapper = DatasetWrapper if dataset_wrapper is None else dataset_wrapper
    # A trainer may name its device: pinning for the CPU would take memory of a GPU all the same.
    on_gpu = cfg.USE_CUDA and (cfg.get("DEVICE") or "cuda").startswith("cuda")
    loader = _Loader(
        wrapper(cfg, data_source, transform=tfm, is_train=is_train),
        batch_size=batch_size,
        sampler=sampler,
        num_workers=cfg.DATALOADER.NUM_WORKERS,
        drop_last=is_train and len(data_source) >= batch_size,
        pin_memory=on_gpu and torch.cuda.is_available(),
    )
    if len(loader) == 0:
        raise ValueError(
            f"the {part} data of {cfg.DATASET.NAME} do not fill a batch: {len(data_source)} items, "
            f"batch size {batch_size}, sampler {sampler_type}"
        )
    return loader


def _transform(cfg: CfgNode, custom: Any, is_train: bool) -> Any:
    if custom is None:
        return build_transform(cfg, is_train=is_train)
    print(f"* Using custom transform for {'training' if is_train else 'testing'}")
    return custom


def _sampling(node: CfgNode) -> dict[str, Any]:
    return {
        "sampler_type": node.SAMPLER,
        "batch_size": node.BATCH_SIZE,
        "n_domain": node.N_DOMAIN,
        "n_ins": node.N_INS,
    }


class DataManager:
    """The data set of a config and its loaders.

    Args:
        cfg: The config.
        custom_tfm_train: Transform (or list of them) instead of the one that ``cfg`` describes.
        custom_tfm_test: The same for validation and test data.
        dataset_wrapper: Class to use instead of :class:`DatasetWrapper`.
    """

    def __init__(
        self,
        cfg: CfgNode,
        custom_tfm_train: Any = None,
        custom_tfm_test: Any = None,
        dataset_wrapper: Any = None,
    ) -> None:
        dataset = build_dataset(cfg)
        train_loader = partial(
            build_data_loader,
            cfg,
            tfm=_transform(cfg, custom_tfm_train, is_train=True),
            is_train=True,
            dataset_wrapper=dataset_wrapper,
        )
        test_loader = partial(
            build_data_loader,
            cfg,
            cfg.DATALOADER.TEST.SAMPLER,
            batch_size=cfg.DATALOADER.TEST.BATCH_SIZE,
            tfm=_transform(cfg, custom_tfm_test, is_train=False),
            is_train=False,
            dataset_wrapper=dataset_wrapper,
        )
        options_x = _sampling(cfg.DATALOADER.TRAIN_X)
        self.train_loader_x = train_loader(data_source=dataset.train_x, **options_x)
        self.train_loader_u = None
        if dataset.train_u:
            same = cfg.DATALOADER.TRAIN_U.SAME_AS_X
            options_u = options_x if same else _sampling(cfg.DATALOADER.TRAIN_U)
            self.train_loader_u = train_loader(data_source=dataset.train_u, **options_u)
        self.val_loader = test_loader(data_source=dataset.val) if dataset.val else None
        self.test_loader = test_loader(data_source=dataset.test)
        self.num_classes = dataset.num_classes
        self.num_source_domains = len(cfg.DATASET.SOURCE_DOMAINS)
        self.lab2cname = dataset.lab2cname
        self.dataset = dataset
        if cfg.VERBOSE:
            self.show_dataset_summary(cfg)

    def show_dataset_summary(self, cfg: CfgNode) -> None:
        """Print a table of the sizes."""
        rows: list[list[Any]] = [["Dataset", cfg.DATASET.NAME]]
        if cfg.DATASET.SOURCE_DOMAINS:
            rows.append(["Source", cfg.DATASET.SOURCE_DOMAINS])
        if cfg.DATASET.TARGET_DOMAINS:
            rows.append(["Target", cfg.DATASET.TARGET_DOMAINS])
        rows.append(["# classes", f"{self.num_classes:,}"])
        rows.append(["# train_x", f"{len(self.dataset.train_x):,}"])
        if self.dataset.train_u:
            rows.append(["# train_u", f"{len(self.dataset.train_u):,}"])
        if self.dataset.val:
            rows.append(["# val", f"{len(self.dataset.val):,}"])
        rows.append(["# test", f"{len(self.dataset.test):,}"])
        print(tabulate(rows))
