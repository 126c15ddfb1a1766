"""The packages, with the configs in the wheel; the rest is in setup.cfg.

In a checkout the configs lie next to locost_jax, so that commands can name
them as configs/NAME.py; in the wheel they lie in it, as locost_jax/configs.
"""

import sys

from setuptools import find_packages
from setuptools import setup

packages = find_packages(include=['locost_jax*'])
if 'editable_wheel' in sys.argv:
  # Puts the checkout on sys.path. Otherwise a directory called locost_jax, such
  # as the checkout in the current directory, hides the package.
  setup(packages=packages, package_dir={'': '.'})
else:
  setup(
      packages=[*packages, 'locost_jax.configs'],
      package_dir={'locost_jax.configs': 'configs'},
  )
