"""A number that an operator refuses is refused behind others, too: a known program ran with it."""

import pytest
import torch

X = [[1.0, 2.0, -3.0]]
CALLS = {
    "celu": (lambda x, number: torch.nn.functional.celu(x, number), 0.0),
    "elu's gradient from its result": (
        lambda x, number: torch.ops.aten.elu_backward(x, number, 1.0, 1.0, True, x),
        -1.0,
    ),
    "leaky_relu's gradient from its result": (
        lambda x, number: torch.ops.aten.leaky_relu_backward(x, x, number, True),
        -0.5,
    ),
    "remainder": (lambda x, number: x.long() % int(number), 0.0),
    "add's alpha of halves": (lambda x, number: torch.add(x.half(), x.half(), alpha=number), 1e5),
    "add's alpha of bytes": (lambda x, number: torch.add(x.byte(), x.byte(), alpha=int(number)), 300),
    "sub_'s alpha": (lambda x, number: x.int().sub_(x.int(), alpha=int(number)), 2**33),
    "addcmul's value": (lambda x, number: torch.addcmul(x.int(), x.int(), x.int(), value=int(number)), 2**40),
    "addmm's beta": (lambda x, number: torch.addmm(x.byte(), x.byte()[:, :1], x.byte(), beta=int(number)), 256),
    "hardtanh's bound": (lambda x, number: torch.nn.functional.hardtanh(x.half(), -1.0, number), 7e4),
    "threshold's value": (lambda x, number: torch.nn.functional.threshold(x.int(), 1, int(number)), -(2**40)),
    "remainder_": (lambda x, number: x.long().remainder_(int(number)), 0.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_refused_as_in_eager(name):
    call, refused = CALLS[name]
    for number in (1.0, 2.0):
        assert torch.equal(call(torch.tensor(X, device="lazyt"), number).cpu(), call(torch.tensor(X), number))
    with pytest.raises(RuntimeError) as eager:
        call(torch.tensor(X), refused)
    with pytest.raises(RuntimeError) as lazy:
        call(torch.tensor(X, device="lazyt"), refused).cpu()
    assert str(eager.value).splitlines()[0][:40] in str(lazy.value)
