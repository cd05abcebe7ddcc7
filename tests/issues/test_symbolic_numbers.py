"""A symbolic number says what it is by code in Python, which may record or let tensors die: nobody asks it while a lock is held,
nor with a call half written."""

import pytest
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv


@pytest.fixture
def symbolic(monkeypatch):
    """symbolic(n): n as a SymInt; what `asked` holds is called when its value is asked for."""
    shapes, asked, names, guard_int = ShapeEnv(), [], iter(range(1000)), SymNode.guard_int

    def guard(self, file, line):
        for f in asked:
            f()
        return guard_int(self, file, line)

    monkeypatch.setattr(SymNode, "guard_int", guard)

    def make(n):
        source = ConstantSource(f"s{next(names)}")
        symbol = shapes.create_symbol(n, source=source, dynamic_dim=DimDynamic.DYNAMIC)
        return shapes.create_symintnode(symbol, hint=n, source=source)

    make.asked = asked
    return make


def test_tensors_may_die_when_it_is_asked(symbolic):
    dying = [torch.empty(3, device="lazyt") for _ in range(40)]
    symbolic.asked.append(lambda: dying and dying.pop())
    x = torch.arange(8, device="lazyt")
    for _ in range(5):
        equal = (x + 1) == symbolic(5)
        torch.lazyt.synchronize()
        assert equal.tolist() == [False] * 4 + [True] + [False] * 3
    assert len(dying) < 40


def test_calls_may_be_recorded_when_it_is_asked(symbolic):
    x, log = torch.arange(8, device="lazyt"), []
    symbolic.asked.append(lambda: log.append(x * 7))
    for _ in range(3):
        assert ((x + 1) == symbolic(5)).tolist() == [False] * 4 + [True] + [False] * 3
        assert torch.add(x, x, alpha=symbolic(2)).tolist() == list(range(0, 24, 3))
        assert torch.full((2,), symbolic(4), device="lazyt").tolist() == [4, 4]
    assert log and all(t.tolist() == list(range(0, 56, 7)) for t in log)
