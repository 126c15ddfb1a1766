"""The packages, with the configs in the wheel; the rest is in setup.cfg.

In a checkout the configs lie next to locost_jax, so that commands can name
them as configs/NAME.py; in the wheel they lie in it, as locost_jax/configs.
"""

from setuptools import find_packages
from setuptools import setup

setup(
    packages=[*find_packages(include=['locost_jax*']), 'locost_jax.configs'],
    package_dir={'locost_jax.configs': 'configs'},
)
