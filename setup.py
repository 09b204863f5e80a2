"""Packaging of coop-cmp: ships the library ``coop_cmp`` and nothing else."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="coop-cmp",
    version="0.1.0",
    description="The confidence misalignment penalty for CLIP prompt learning, with calibration "
    "measured properly: a plugin for the CoOp / Dassl codebase",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    author="The coop-cmp authors",
    project_urls={
        "Paper": "https://arxiv.org/abs/2501.17595",
        "CoOp": "https://github.com/KaiyangZhou/CoOp",
    },
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=["coop_cmp", "coop_cmp.*"]),
    package_data={
        "coop_cmp": ["py.typed", "report/*.csv", "report/page/page.*", "report/page/*.js"]
    },
    install_requires=[
        "torch>=2.8",
        "torchvision>=0.23",
        "numpy>=1.24",
        "scipy>=1.10",
        "open_clip_torch>=3.1,<4",
        "safetensors>=0.4.4",
        "yacs>=0.1.8",
        "PyYAML>=6",
        "tabulate>=0.9",
        "tqdm>=4.60",
        "pillow>=9.3",
    ],
    extras_require={
        "test": [
            "pytest>=7",
            "pytest-xdist>=3.6",
            "hypothesis>=6.30",
            "torchmetrics>=1.0",
            "netcal>=1.4",
            "tensorboard>=2.12",
            "scikit-learn>=1.5",
            "matplotlib>=3.8",
            "pandas>=2.2.2",
            "jinja2>=3.1",
            "plotly>=6",
            "selenium>=4.11",
            "ruff>=0.6",
            "mypy>=1.8",
        ],
        "report": ["matplotlib>=3.8", "pandas>=2.2.2", "jinja2>=3.1", "plotly>=6"],
        "fonts": [
            "font-roboto",
            "font-caladea",
            "font-source-serif-pro",
            "font-source-sans-pro",
            "font-manrope",
            "font-hanken-grotesk",
            "font-fredoka-one",
            "font-intuitive",
        ],
        "trackers": ["tensorboard>=2.12", "wandb>=0.17", "mlflow>=2.10"],
    },
)
