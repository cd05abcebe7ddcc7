"""Each file here is one bug that was fixed: a program that must do on lazyt what it does eagerly on the CPU."""

import pytest

torch = pytest.importorskip("torch")
lazyt = pytest.importorskip("lazyt")


def observe(program, device, twice):
    """What the program returns, or the type and text of what it raises."""
    for _ in range(2 if twice else 1):  # the second time from what was learned the first time
        try:
            results = program(device)
        except Exception as e:
            shown = (type(e), str(e))
        else:
            results = results if isinstance(results, tuple) else (results,)
            shown = [(r.cpu(), tuple(r.stride()), r.dtype) if isinstance(r, torch.Tensor) else r for r in results]
    return shown


@pytest.fixture
def as_eager():
    """Runs program(device) on both devices, twice on lazyt: values, strides, dtypes and errors must agree."""

    def check(program, raises=None):
        eager, lazy = observe(program, "cpu", False), observe(program, "lazyt", True)
        if isinstance(eager, tuple) or isinstance(lazy, tuple):
            assert lazy == eager
        assert isinstance(eager, tuple) == (raises is not None), eager
        if raises:
            return
        for e, a in zip(eager, lazy, strict=True):
            if isinstance(e, tuple):
                torch.testing.assert_close(a[0], e[0], equal_nan=True)
                assert a[1:] == e[1:]
            else:
                assert a == e

    return check
