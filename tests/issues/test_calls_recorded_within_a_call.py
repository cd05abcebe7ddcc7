"""Code in Python that runs while a call is recorded (a custom operator's kernel for shapes, the finalizer of an object that
the garbage collector finds) records calls of its own, by the same thread: they took the place of the one around them."""

import gc

import pytest
import torch


class Dies:
    """Garbage that a collection finds; it counts something on the device, then."""

    def __init__(self, last_words):
        self.itself, self.last_words = self, last_words

    def __del__(self):
        self.last_words()


@pytest.fixture(scope="module")
def twice():
    """x * 2 + y; its kernel for shapes runs what `within` holds."""
    library = torch.library.Library("lazyt_within_a_call", "DEF")
    library.define("twice(Tensor x, Tensor y) -> Tensor")
    torch.library.impl(library, "twice", "CPU")(lambda x, y: x * 2 + y)
    within = []

    def fake(x, y):
        for f in within:
            f()
        return torch.empty_like(x)

    torch.library.register_fake("lazyt_within_a_call::twice", fake, lib=library)
    yield torch.ops.lazyt_within_a_call.twice, within
    library._destroy()


# Of two sizes: the kernel is asked once for each.
@pytest.mark.parametrize("how, size", [("at once", 3), ("by the garbage collector", 4)])
def test_by_a_kernel_for_shapes(twice, how, size):
    operator, within = twice
    mine, log = torch.full((5,), 100.0, device="lazyt"), []

    def collect():
        Dies(lambda: log.append(mine * mine))
        gc.collect()

    within[:] = [collect if how == "by the garbage collector" else lambda: log.append(mine.mul_(3.0))]
    x, y = torch.arange(float(size), device="lazyt"), torch.full((size,), 10.0, device="lazyt")
    z = operator(x, y)
    within.clear()
    assert z.tolist() == [10.0 + 2 * i for i in range(size)]
    assert [t.tolist() for t in log] == [[300.0 if how == "at once" else 10000.0] * 5]


def test_by_finalizers_where_a_line_of_the_program_is_asked_for():
    threshold = gc.get_threshold()
    mine, log = torch.full((3,), 100.0, device="lazyt"), []
    try:
        for i in range(200):
            gc.disable()
            x = torch.arange(1.0, 4.0, device="lazyt").reshape(3)
            for _ in range(5):
                Dies(lambda: log.append(mine * mine))
            gc.set_threshold(1, 1, 1), gc.enable()
            y = x.reshape(1, 3).expand(i + 2, 3) - float(i)  # another size each time: a new call
            gc.disable()
            assert y.tolist() == [[1.0 - i, 2.0 - i, 3.0 - i]] * (i + 2)
    finally:
        gc.set_threshold(*threshold), gc.enable()
    assert all(t.tolist() == [10000.0] * 3 for t in log)
