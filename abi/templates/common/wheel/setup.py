"""The wheel's tag: any Python, this platform. A wheel for others to download is built where the oldest glibc of its users
is: `pip wheel --config-settings=--build-option=--plat-name=manylinux_2_28_x86_64 .`"""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"bdist_wheel": PlatformWheel})
