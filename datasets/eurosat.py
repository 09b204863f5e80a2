"""EuroSAT, the RGB version (Helber et al., 2019); its class names are written out for prompts."""

from __future__ import annotations

from typing import ClassVar

from dassl.data.datasets import DATASET_REGISTRY

from .base import ClassFolderDataset, Sizes


@DATASET_REGISTRY.register()
class EuroSAT(ClassFolderDataset):
    """EuroSAT with the split of the CoOp codebase."""

    dataset_dir = "eurosat"
    image_dir = "2750"
    split_file = "split_zhou_EuroSAT.json"
    split_id = "1Ip7yaCWFi0eaOFUGga0lUdVi_DDQth1o"
    sizes = Sizes(10, 13500, 5400, 8100)
    renamed: ClassVar[dict[str, str]] = {
        "AnnualCrop": "Annual Crop Land",
        "HerbaceousVegetation": "Herbaceous Vegetation Land",
        "Highway": "Highway or Road",
        "Industrial": "Industrial Buildings",
        "Pasture": "Pasture Land",
        "PermanentCrop": "Permanent Crop Land",
        "Residential": "Residential Buildings",
        "SeaLake": "Sea or Lake",
    }
