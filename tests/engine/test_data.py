"""Data sets, samplers, loaders."""

from __future__ import annotations

import pickle
import random
from collections import Counter

import pytest
import torch
from dassl.data import DataManager, DatasetWrapper
from dassl.data.data_manager import build_data_loader
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase, Datum, build_dataset
from dassl.data.samplers import build_sampler
from PIL import Image
from torchvision import transforms as T

from .toy import CLASSES, SIZE, items


def test_a_datum_is_read_only_and_survives_pickling(images):
    datum = items(images, "test")[4]
    with pytest.raises(AttributeError):
        datum.label = 3  # type: ignore[misc]
    copy = pickle.loads(pickle.dumps(datum))
    assert vars(copy) == {
        "_impath": str(images / "test-dog-1.png"),
        "_label": 1,
        "_domain": 1,
        "_classname": "dog",
    }
    assert (copy.impath, copy.label, copy.domain, copy.classname) == tuple(vars(datum).values())
    assert Datum.__module__ == "dassl.data.datasets.base_dataset"


def test_a_datum_wants_an_existing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.png.*--root"):
        Datum(impath=str(tmp_path / "nothing.png"))
    with pytest.raises(TypeError, match="impath: expected a str, got PosixPath"):
        Datum(impath=tmp_path)  # type: ignore[arg-type]


def test_classes_come_from_the_training_data(images):
    dataset = DatasetBase(train_x=items(images, "train")[::-1], test=items(images, "test"))
    assert dataset.num_classes == 3
    assert dataset.classnames == list(CLASSES)
    assert dataset.lab2cname == dict(enumerate(CLASSES))
    assert (dataset.val, dataset.train_u) == (None, None)


def test_few_shot_sampling_draws_as_published_for_a_seed(images):
    source = items(images, "train")
    random.seed(7)
    expected = []
    for label in range(3):  # one draw per class, in order of first appearance
        expected += random.sample([item for item in source if item.label == label], 2)
    random.seed(7)
    assert DatasetBase().generate_fewshot_dataset(source, num_shots=2) == expected


def test_few_shot_sampling_with_too_few_items(images, capsys):
    base, source = DatasetBase(), items(images, "val")
    assert base.generate_fewshot_dataset(source, num_shots=5) == source
    assert "Warning: 3 classes have fewer than 5 items" in capsys.readouterr().out
    repeated = base.generate_fewshot_dataset(source, num_shots=5, repeat=True)
    assert Counter(item.label for item in repeated) == {0: 5, 1: 5, 2: 5}
    assert "Warning" not in capsys.readouterr().out


def test_few_shot_sampling_gives_one_list_per_source(images):
    base, source = DatasetBase(), items(images, "train")
    assert base.generate_fewshot_dataset(source) is source
    assert base.generate_fewshot_dataset(source, source) == (source, source)
    pair = base.generate_fewshot_dataset(source, source, num_shots=1)
    assert isinstance(pair, list)
    assert [len(part) for part in pair] == [3, 3]


def test_domains_are_checked_and_split(images):
    class Two(DatasetBase):
        domains = ("photo", "sketch")

    Two().check_input_domains(["photo"], ["sketch"])
    with pytest.raises(ValueError, match=r"\['photo', 'sketch'\], but got \[paint\]"):
        Two().check_input_domains(["photo"], ["paint"])
    parts = Two().split_dataset_by_domain(items(images, "train"))
    assert {domain: len(part) for domain, part in parts.items()} == {0: 9, 1: 9}


def test_an_unknown_data_set_is_answered_with_the_closest(make_cfg):
    with pytest.raises(ValueError, match=r"do you mean \[Toy\]"):
        build_dataset(make_cfg("DATASET.NAME", "Toyy"))


@pytest.mark.parametrize("name", ["RandomDomainSampler", "SeqDomainSampler"])
def test_domain_samplers_share_each_batch_among_the_domains(images, name):
    source = items(images, "train")
    sampler = build_sampler(name, data_source=source, batch_size=4)
    indices = list(sampler)
    assert len(indices) == len(sampler) == 16
    assert len(set(indices)) == 16
    for start in range(0, 16, 4):
        domains = [source[i].domain for i in indices[start : start + 4]]
        assert Counter(domains) == {0: 2, 1: 2}
        if name == "SeqDomainSampler":
            assert domains == [0, 0, 1, 1]


def test_a_random_domain_sampler_can_take_one_domain_per_batch(images):
    source = items(images, "train")
    sampler = build_sampler("RandomDomainSampler", data_source=source, batch_size=3, n_domain=1)
    indices = list(sampler)
    assert sorted(indices) == list(range(18))
    for start in range(0, 18, 3):
        assert len({source[i].domain for i in indices[start : start + 3]}) == 1
    with pytest.raises(ValueError, match="N_DOMAIN: expected at most 2 domains"):
        build_sampler("RandomDomainSampler", data_source=source, batch_size=4, n_domain=3)


def test_the_class_sampler_takes_n_items_of_each_class_and_keeps_its_length(images):
    source = items(images, "train")[:-2]  # the last class has 4 items, the others 6
    sampler = build_sampler("RandomClassSampler", data_source=source, batch_size=4, n_ins=2)
    orders = set()
    for seed in range(20):
        random.seed(seed)
        state = random.getstate()
        assert len(sampler) == 16
        assert random.getstate() == state
        indices = list(sampler)
        assert len(indices) == 16
        for start in range(0, 16, 4):
            labels = Counter(source[i].label for i in indices[start : start + 4])
            assert list(labels.values()) == [2, 2]
        orders.add(tuple(indices))
    assert len(orders) == 20


def test_the_class_sampler_repeats_items_of_a_small_class(images):
    source = items(images, "val")
    sampler = build_sampler("RandomClassSampler", data_source=source, batch_size=9, n_ins=3)
    labels = [source[i].label for i in sampler]
    assert Counter(labels) == {0: 3, 1: 3, 2: 3}
    with pytest.raises(ValueError, match="has 5 classes, expected 1 to 3"):
        build_sampler("RandomClassSampler", data_source=source, batch_size=10, n_ins=2)


def test_an_unknown_sampler_is_refused(images):
    with pytest.raises(ValueError, match="Unknown sampler type: Magic"):
        build_sampler("Magic", data_source=items(images, "val"))


def test_an_item_of_the_wrapper_has_the_agreed_keys(images, make_cfg):
    source = items(images, "test")
    wrapper = DatasetWrapper(make_cfg(), source, transform=T.ToTensor())
    assert len(wrapper) == 9
    item = wrapper[5]
    assert {key: item[key] for key in ("label", "domain", "impath", "index")} == {
        "label": 1,
        "domain": 0,
        "impath": source[5].impath,
        "index": 5,
    }
    assert torch.equal(item["img"], T.ToTensor()(Image.open(source[5].impath)))
    assert isinstance(DatasetWrapper(make_cfg(), source)[0]["img"], Image.Image)


def test_the_wrapper_gives_several_views_on_request(images, make_cfg):
    cfg = make_cfg("DATALOADER.K_TRANSFORMS", 2, "DATALOADER.RETURN_IMG0", True)
    source = items(images, "test")
    tfm = T.Compose([T.Resize(4), T.ToTensor()])
    item = DatasetWrapper(cfg, source, transform=[tfm, tfm], is_train=True)[0]
    assert [len(item[key]) for key in ("img", "img2")] == [2, 2]
    assert item["img0"].shape == (3, SIZE, SIZE)
    assert DatasetWrapper(cfg, source, transform=tfm, is_train=False)[0]["img"].shape == (3, 4, 4)
    with pytest.raises(ValueError, match="K_TRANSFORMS"):
        DatasetWrapper(cfg, source, is_train=True)


def test_the_manager_builds_every_loader_and_prints_the_sizes(make_cfg, capsys):
    dm = DataManager(make_cfg("DATALOADER.TEST.BATCH_SIZE", 5))
    assert [len(loader) for loader in (dm.train_loader_x, dm.train_loader_u)] == [4, 1]
    assert [len(loader) for loader in (dm.val_loader, dm.test_loader)] == [2, 2]
    assert (dm.num_classes, dm.num_source_domains) == (3, 0)
    assert dm.lab2cname[2] == "owl"
    out = capsys.readouterr().out
    for line in ("Loading dataset: Toy", "# classes  3", "# train_x  18", "# val      6"):
        assert line in out
    seen = torch.cat([batch["index"] for batch in dm.train_loader_x])
    assert seen.tolist() != sorted(seen.tolist())
    labels = torch.cat([batch["label"] for batch in dm.test_loader])
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_the_unlabelled_loader_can_have_settings_of_its_own(make_cfg):
    cfg = make_cfg("DATALOADER.TRAIN_U.SAME_AS_X", False, "DATALOADER.TRAIN_U.BATCH_SIZE", 2)
    assert len(DataManager(cfg).train_loader_u) == 3


def test_own_transforms_and_wrapper_are_used(make_cfg, capsys):
    class Wrapper(DatasetWrapper):
        def __getitem__(self, idx):
            return {**super().__getitem__(idx), "mine": self.is_train}

    tfm = T.Compose([T.Resize((4, 4)), T.ToTensor()])
    dm = DataManager(make_cfg(), tfm, tfm, Wrapper)
    batch = next(iter(dm.train_loader_x))
    assert batch["img"].shape == (4, 3, 4, 4)
    assert batch["mine"].all()
    assert not next(iter(dm.test_loader))["mine"].any()
    assert "* Using custom transform for training" in capsys.readouterr().out


def test_a_last_batch_that_is_not_full_is_dropped_in_training_only(images, make_cfg):
    source, cfg = items(images, "test"), make_cfg()

    def length(batch_size: int, is_train: bool) -> int:
        loader = build_data_loader(
            cfg, data_source=source, batch_size=batch_size, tfm=T.ToTensor(), is_train=is_train
        )
        return len(loader)

    assert [length(4, True), length(4, False), length(10, True)] == [2, 3, 1]


def test_an_empty_part_is_named(make_cfg, monkeypatch):
    class Empty(DatasetBase):
        def __init__(self, cfg):
            super().__init__(train_x=[], test=[])

    monkeypatch.setitem(DATASET_REGISTRY._obj_map, "Empty", Empty)
    with pytest.raises(ValueError, match="Empty has no training data"):
        DataManager(make_cfg("DATASET.NAME", "Empty"))


@pytest.mark.filterwarnings("error::UserWarning")
def test_more_workers_than_cores_are_given_without_a_warning(images, make_cfg):
    loader = build_data_loader(
        make_cfg("DATALOADER.NUM_WORKERS", 500), data_source=items(images, "val"), tfm=T.ToTensor()
    )
    assert loader.num_workers == 500


@pytest.mark.parametrize(
    ("device", "use_cuda", "pinned"),
    [
        (None, True, True),
        ("", True, True),
        ("cuda:1", True, True),
        ("cpu", True, False),
        ("mps", True, False),
        (None, False, False),
    ],
)
def test_memory_is_pinned_for_a_gpu_that_the_run_uses(
    images, make_cfg, monkeypatch, device, use_cuda, pinned
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cfg = make_cfg("USE_CUDA", use_cuda)
    if device is not None:
        cfg.DEVICE = device
    loader = build_data_loader(cfg, data_source=items(images, "val"), tfm=T.ToTensor())
    assert loader.pin_memory is pinned
