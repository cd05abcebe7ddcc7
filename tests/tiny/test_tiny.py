"""Signs of life, in ten seconds."""

import pytest

torch = pytest.importorskip("torch")
lazyt = pytest.importorskip("lazyt")


@pytest.fixture
def x():
    return torch.arange(12.0).reshape(3, 4)


def test_import_names_the_device():
    assert str(torch.device("lazyt", 0)) == "lazyt:0"
    assert torch.lazyt.is_available()
    assert lazyt.backend()["name"]


def test_add(x):
    assert torch.equal((x.to("lazyt") + 1).cpu(), x + 1)


def test_mm(x):
    torch.testing.assert_close((x.to("lazyt") @ x.to("lazyt").T).cpu(), x @ x.T)


def test_view_and_in_place_write(x):
    lazy = x.to("lazyt")
    lazy[1:3].mul_(2)
    lazy.T[0].add_(10)
    x[1:3].mul_(2)
    x.T[0].add_(10)
    assert torch.equal(lazy.cpu(), x)


def test_backward(x):
    weight = torch.ones(4, 2)
    grads = []
    for device in ("cpu", "lazyt"):
        w = weight.detach().to(device).requires_grad_()
        torch.relu(x.to(device) @ w).square().mean().backward()
        grads.append(w.grad.cpu())
    torch.testing.assert_close(*grads)


def test_item(x):
    assert x.to("lazyt").sum().item() == 66.0


def test_print():
    assert repr(torch.ones(2, device="lazyt") + 1) == "tensor([2., 2.], device='lazyt:0')"


def test_operator_on_the_host(x):
    lazyt.metrics.reset()
    q = torch.linalg.svdvals(x.to("lazyt")).cpu()
    torch.testing.assert_close(q, torch.linalg.svdvals(x))


def test_mark_step(x):
    y = x.to("lazyt") * 3
    assert lazyt._C.pending_ops() > 0
    lazyt.mark_step()
    assert lazyt._C.pending_ops() == 0
    assert torch.equal(y.cpu(), x * 3)


def test_metrics(x):
    lazyt.metrics.reset()
    (x.to("lazyt") + 1).cpu()
    assert lazyt.metrics.counter_value("lazyt::add") == 1
    assert "FlushValueNeeded" in lazyt.metrics.counter_names()
    assert "lazyt::add" in lazyt.metrics.report()
