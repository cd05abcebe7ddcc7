"""Convolutions whose windows libraries get wrong."""

from conformance_corpus.corpus import Corpus, grid


def make(folder):
    c = Corpus("windows", "Convolutions whose windows libraries get wrong.")
    # A step further than the kernel reaches, a channel at a time through a depth. (Steps through a padded
    # depth or over short lines are in tests/backends: PyTorch 2.13's own gradients are wrong there, so ts's.)
    for name, size, kernel, stride, padding, groups in (
        ("sparse", (1, 2, 4, 3, 2), (3, 2, 1, 1, 1), (3, 2, 1), (0, 0, 0), 1),
        ("depthwise", (1, 2, 2, 4, 3), (2, 1, 3, 1, 3), (1, 3, 1), (1, 0, 1), 2),
    ):
        x, w, v = grid(*size), grid(*kernel), grid(kernel[0])
        axes = len(stride)
        rest = [[*stride], [*padding], [1] * axes, False, [0] * axes, groups]
        c.convolution(name, x, w, v, rest)
    c.write(folder)
