"""A data set is lists of image files with labels."""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from dassl.utils import download_url


class Datum:
    """One image file with its label.

    Args:
        impath: The image file, which must exist.
        label: Class, from 0.
        domain: Domain, from 0.
        classname: Name of the class.
    """

    def __init__(
        self, impath: str = "", label: int = 0, domain: int = 0, classname: str = ""
    ) -> None:
        if not isinstance(impath, str):
            raise TypeError(f"impath: expected a str, got {type(impath).__name__}: {impath!r}")
        if not os.path.isfile(impath):
            raise FileNotFoundError(
                f'No file found at "{impath}": the data set is incomplete; check --root'
            )
        self._impath = impath
        self._label = label
        self._domain = domain
        self._classname = classname

    # Read-only.
    impath = property(attrgetter("_impath"), doc="The image file.")
    label = property(attrgetter("_label"), doc="Class, from 0.")
    domain = property(attrgetter("_domain"), doc="Domain, from 0.")
    classname = property(attrgetter("_classname"), doc="Name of the class.")


class DatasetBase:
    """Parent of all data sets: labelled and unlabelled training data, validation and test data.

    Classes and their names are those of ``train_x``.
    """

    dataset_dir = ""
    domains: Sequence[str] = []

    def __init__(
        self,
        train_x: list[Datum] | None = None,
        train_u: list[Datum] | None = None,
        val: list[Datum] | None = None,
        test: list[Datum] | None = None,
    ) -> None:
        self._train_x = train_x
        self._train_u = train_u
        self._val = val
        self._test = test
        self._num_classes = self.get_num_classes(train_x or [])
        self._lab2cname, self._classnames = self.get_lab2cname(train_x or [])

    train_x = property(attrgetter("_train_x"), doc="Labelled training data.")
    train_u = property(attrgetter("_train_u"), doc="Unlabelled training data, or None.")
    val = property(attrgetter("_val"), doc="Validation data, or None.")
    test = property(attrgetter("_test"), doc="Test data.")
    lab2cname = property(attrgetter("_lab2cname"), doc="Class name of each label.")
    classnames = property(attrgetter("_classnames"), doc="Class names by label.")
    num_classes = property(attrgetter("_num_classes"), doc="Highest training label + 1.")

    @staticmethod
    def get_num_classes(data_source: Iterable[Datum]) -> int:
        """Highest label + 1."""
        return max((item.label for item in data_source), default=-1) + 1

    @staticmethod
    def get_lab2cname(data_source: Iterable[Datum]) -> tuple[dict[int, str], list[str]]:
        """Class name of each label, and the names in the order of the labels."""
        mapping = {item.label: item.classname for item in data_source}
        return mapping, [mapping[label] for label in sorted(mapping)]

    def check_input_domains(
        self, source_domains: Sequence[str], target_domains: Sequence[str]
    ) -> None:
        """Raise ValueError if a domain is none of ``self.domains``."""
        for domain in [*source_domains, *target_domains]:
            if domain not in self.domains:
                raise ValueError(
                    f"Input domain must belong to {list(self.domains)}, but got [{domain}]"
                )

    def download_data(self, url: str, dst: str, from_gdrive: bool = True) -> None:
        """Download an archive to the file ``dst`` and unpack it beside it."""
        os.makedirs(os.path.dirname(dst), exist_ok=True)
        if from_gdrive:
            import gdown  # wanted by this method alone

            gdown.download(url, dst, quiet=False)
        else:
            download_url(url, dst)
        print("Extracting file ...")
        shutil.unpack_archive(dst, os.path.dirname(dst))
        print(f"File extracted to {os.path.dirname(dst)}")

    def generate_fewshot_dataset(
        self, *data_sources: list[Datum], num_shots: int = -1, repeat: bool = False
    ) -> Any:
        """Draw ``num_shots`` items of each class from each source.

        Args:
            *data_sources: Lists of items.
            num_shots: Items per class; below 1 the sources are given back as they are.
            repeat: Draw with replacement from a class that has too few items (otherwise it gives
                all it has).

        Returns:
            A list of items for one source, a list of such lists for several.
        """
        if num_shots < 1:
            return data_sources[0] if len(data_sources) == 1 else data_sources

        print(f"Creating a {num_shots}-shot dataset")
        output = []
        short = 0
        for data_source in data_sources:
            dataset: list[Datum] = []
            for items in self.split_dataset_by_label(data_source).values():
                if len(items) >= num_shots:
                    dataset.extend(random.sample(items, num_shots))
                elif repeat:
                    dataset.extend(random.choices(items, k=num_shots))
                else:
                    dataset.extend(items)
                    short += 1
            output.append(dataset)
        if short:
            print(f"Warning: {short} classes have fewer than {num_shots} items; all are used")
        return output[0] if len(output) == 1 else output

    def split_dataset_by_label(self, data_source: Iterable[Datum]) -> dict[int, list[Datum]]:
        """Items of each label, labels in order of first appearance."""
        return _grouped(data_source, "label")

    def split_dataset_by_domain(self, data_source: Iterable[Datum]) -> dict[int, list[Datum]]:
        """Items of each domain, domains in order of first appearance."""
        return _grouped(data_source, "domain")


def _grouped(data_source: Iterable[Datum], key: str) -> dict[int, list[Datum]]:
    groups: defaultdict[int, list[Datum]] = defaultdict(list)
    for item in data_source:
        groups[getattr(item, key)].append(item)
    return groups
