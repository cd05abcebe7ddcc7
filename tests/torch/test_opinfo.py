"""A fixed sample of PyTorch's OpInfo (opinfo.py); the whole of it is a command of its own."""

import subprocess
import sys
from pathlib import Path

import lazyt
import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's OpInfo needs it")


def test_a_sample_of_operators_is_as_eager():
    tool = Path(__file__).parent / "opinfo.py"
    categories = [word for c in ("float32", "int64", "backward", "inplace", "out") for word in ("--category", c)]
    run = subprocess.run(
        [sys.executable, str(tool), "--every", "31", "--samples", "3", *categories], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_distributions_and_cuts_are_told_apart():
    sys.path.insert(0, str(Path(__file__).parent))
    import distribution

    def draws(shift):
        return lambda device: [torch.rand(64, device=device) + (shift if device == "lazyt" else 0)]

    def on_cpu(results):
        return [r.cpu() for r in results]

    assert distribution.draws(draws(0), "cpu") and not distribution.draws(torch.ones, 3)
    assert distribution.distributions_differ(draws(0), "lazyt", on_cpu) is None
    assert distribution.distributions_differ(draws(0.05), "lazyt", on_cpu)
    assert distribution.cuts_matter(draws(0), "lazyt", on_cpu) is None

    def counts_cuts(device):
        torch.ones(2, device=device).add_(1)
        return [torch.tensor(float(lazyt.metrics.counters().get("MarkStep", 0)))]

    assert distribution.cuts_matter(counts_cuts, "lazyt", on_cpu)


def test_sixteen_bits_are_measured_against_sixty_four():
    sys.path.insert(0, str(Path(__file__).parent))
    import opinfo
    from torch.testing._internal.opinfo.core import SampleInput

    class Third:
        name = "third"
        op = staticmethod(lambda x: x / 3)

    sample = SampleInput(torch.tensor([1.0, 2.0, float("inf")], dtype=torch.bfloat16))
    right = opinfo.attempt(opinfo.perform, Third, "bfloat16", sample, "cpu")
    off = [right[0] | {"value": right[0]["value"] * torch.tensor([1, 1.05, 1]).bfloat16()}]
    unlike = [right[0] | {"value": right[0]["value"].nan_to_num()}]
    for eager, lazy, near in ((off, right, True), (right, off, False), (right, unlike, False), (off, unlike, False)):
        assert opinfo.difference(eager, lazy, True)
        assert opinfo.nearer(Third, "bfloat16", sample, eager, lazy) is near


def test_sums_in_another_order_are_measured_against_sixty_four():
    """Of f32 and complex64: as near as eager's errors, four times, are; no nearer to eager than to the truth."""
    sys.path.insert(0, str(Path(__file__).parent))
    import opinfo
    from torch.testing._internal.opinfo.core import SampleInput

    class Total:
        name = "total"
        op = staticmethod(lambda x: x.sum().reshape(1))

    for dtype in (torch.float32, torch.complex64):
        sample = SampleInput(torch.tensor([1e8, 1, -1e8, 3], dtype=dtype))  # 4; by f32, one after the other, 3 or 4
        shown = opinfo.attempt(opinfo.perform, Total, "float32", sample, "cpu")
        of = [[shown[0] | {"value": torch.tensor([v], dtype=dtype)}] for v in (3, 5, 4, 9)]
        for eager, lazy, near in ((of[0], of[1], True), (of[0], of[2], True), (of[0], of[3], False), (of[2], of[0], False)):
            assert opinfo.difference(eager, lazy, True)
            assert opinfo.nearer(Total, "float32", sample, eager, lazy) is near
