"""Views, in-place writes and storages mean what they mean in eager PyTorch."""

import pytest
import torch


def write_through_slice(x, y):
    x[1:3] = y
    return x


def write_through_transpose(x, y):
    x.T.add_(1)
    return x


def write_through_chain(x, y):
    x.view(-1)[4:8].view(2, 2).T.mul_(y[0, 0] + 2)
    return x


def write_seen_by_earlier_view(x, y):
    v = x[0]
    x.add_(1)
    return v * 2


def write_through_two_views(x, y):
    a, b = x[0], x[:, 0]
    a.fill_(7)
    b.neg_()
    return x


def write_overlapping_slices(x, y):
    x[:-1].add_(x[1:].clone())
    return x


def masked_write(x, y):
    x[x > 5] = -1
    return x


def indexed_write(x, y):
    x[torch.tensor([0, 2], device=x.device)] = y
    return x


def diagonal_write(x, y):
    x.diagonal().zero_()
    return x


def expanded_read(x, y):
    return y[0].expand(3, 4) + x


def strided_read(x, y):
    return x.as_strided((2, 2), (5, 1), 1).clone()


def detached_write(x, y):
    d = x.detach()
    d.mul_(3)
    return x


def data_assignment(x, y):
    alias = x.view(-1)
    x.data = y.clone()
    x.add_(1)
    return x, alias


def set_storage(x, y):
    x.set_(y)
    y.add_(5)
    return x


def unbind_write(x, y):
    for i, row in enumerate(x.unbind(0)):
        row.add_(i)
    return x


def view_as_dtype(x, y):
    return x.view(torch.int32) + 1


def out_argument(x, y):
    out = torch.empty(3, 4, device=x.device)
    torch.add(x, 1, out=out)
    torch.mul(x, 2, out=out[0:3])
    return out


CASES = [
    write_through_slice,
    write_through_transpose,
    write_through_chain,
    write_seen_by_earlier_view,
    write_through_two_views,
    write_overlapping_slices,
    masked_write,
    indexed_write,
    diagonal_write,
    expanded_read,
    strided_read,
    detached_write,
    data_assignment,
    set_storage,
    unbind_write,
    view_as_dtype,
    out_argument,
]


@pytest.mark.parametrize("program", CASES, ids=lambda p: p.__name__)
def test_program_gives_eagers_result(both, program):
    x, y = torch.arange(12.0).reshape(3, 4), -torch.ones(2, 4)
    eager, lazy = both(program, x, y)
    torch.testing.assert_close(lazy, eager, rtol=0, atol=0)


def test_geometry_is_eagers():
    x = torch.arange(12.0).reshape(3, 4)
    for view in (
        lambda t: t.T,
        lambda t: t[1:, ::2],
        lambda t: t.view(-1)[3:7],
        lambda t: t.unsqueeze(1).expand(3, 5, 4),
    ):
        e, z = view(x), view(x.to("lazyt"))
        assert (e.shape, e.stride(), e.storage_offset()) == (z.shape, z.stride(), z.storage_offset())


def test_views_share_the_storage_of_their_base():
    x = torch.arange(12.0, device="lazyt").reshape(3, 4)
    v = x[1:]
    assert v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert v._base is x._base or v._base is x
    assert v.data_ptr() - x.data_ptr() == 16
    assert x.untyped_storage().nbytes() == 48


def test_in_place_write_raises_version_of_all_views():
    x = torch.zeros(4, device="lazyt")
    v = x[1:]
    before = v._version
    x.add_(1)
    assert v._version == before + 1


def test_write_to_a_tensor_that_backward_needs_is_an_error():
    x = torch.ones(3, device="lazyt", requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_tied_weights_stay_tied():
    first, second = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    model = torch.nn.Sequential(first, second).to("lazyt")
    assert model[0].weight is model[1].weight
    model(torch.ones(2, 4, device="lazyt")).sum().backward()
    with torch.no_grad():
        model[0].weight.zero_()
    assert model[1].weight.abs().sum().item() == 0


def test_optimizer_made_before_the_move_trains_the_moved_model():
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.to("lazyt")
    before = model.weight.detach().cpu().clone()
    model(torch.ones(1, 3, device="lazyt")).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.weight.detach().cpu(), before - 0.5)


@pytest.mark.parametrize("device", ["cpu", "lazyt"])
def test_in_place_views_change_geometry_alone(device):
    x = torch.arange(6.0).reshape(2, 3).to(device)
    x.t_().unsqueeze_(0)
    assert x.shape == (1, 3, 2) and x.stride() == (3, 1, 3)
    x.squeeze_().transpose_(0, 1).add_(1)
    assert torch.equal(x.cpu(), torch.arange(6.0).reshape(2, 3) + 1)


def test_views_without_elements_have_the_strides_that_eager_says():
    of_none = {"cpu": [], "lazyt": []}
    for device, strides in of_none.items():
        x = torch.ones(6, 2, device=device)
        for v in (x[0:0:3, 0], x[2:2].t()[0], x[:, 1][3:3], x.flatten()[0:0:2], x[1:1], x[:, 2:], x[0, :0]):
            strides.append((v.shape, v.stride(), v.is_contiguous()))
    assert of_none["lazyt"] == of_none["cpu"]
