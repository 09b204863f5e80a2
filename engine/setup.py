"""Packaging of dassl-light: the module ``dassl`` for machines without upstream Dassl."""

from setuptools import find_packages, setup

setup(
    name="dassl-light",
    version="0.1.0",
    description="A clean implementation of the public API of Dassl that CoOp-family code uses",
    license="MIT",
    python_requires=">=3.10",
    packages=find_packages(include=["dassl", "dassl.*"]),
    package_data={"dassl": ["py.typed"]},
    install_requires=[
        "torch>=2.8",
        "torchvision>=0.23",
        "numpy>=1.24",
        "yacs>=0.1.8",
        "tabulate>=0.9",
        "tqdm>=4.60",
        "pillow>=9.3",
        "PyYAML>=6",
    ],
    extras_require={"tensorboard": ["tensorboard>=2.12"]},
)
