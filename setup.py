"""Which packages are installed from where; pyproject.toml has the rest.

``trainers/``, ``datasets/`` and ``configs/`` lie at the top, as in other CoOp-family repositories,
and are installed as subpackages of ``coop_cmp``.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["coop_cmp", "coop_cmp.*"]),
        *(f"coop_cmp.engine.{name}" for name in find_packages("coop_cmp/engine")),
        *(f"coop_cmp.{name}" for name in find_packages(include=["trainers*", "datasets*"])),
        "coop_cmp.configs",
    ],
    package_dir={f"coop_cmp.{name}": name for name in ("trainers", "datasets", "configs")},
    package_data={
        "coop_cmp": ["py.typed", "report/*.csv", "report/page/page.*", "report/page/*.js"],
        "coop_cmp.engine.dassl": ["py.typed"],
        "coop_cmp.configs": ["**/*"],
    },
)
