"""Python's integers from 2^63 on "cannot be recorded": such a call runs on the host now, with eager's results and errors."""

import pytest
import torch

N = 2**63
CALLS = {
    "eq": lambda x: x == N,
    "lt": lambda x: x < N + 1,
    "fill_": lambda x: x.fill_(N),
    "full": lambda x: torch.full((2,), N, dtype=x.dtype, device=x.device),
    "uint64": lambda x: torch.full((2,), N + 1, dtype=torch.uint64, device=x.device).view(torch.int64),
    "pow": lambda x: x**N,
    "masked_fill": lambda x: x.masked_fill(x > 0, N),
    "where": lambda x: torch.where(x > 0, x, N),
    "xor": lambda x: x ^ N,
    "rsub": lambda x: N - x,
    "alpha": lambda x: torch.add(x, x, alpha=N),
    "foreach": lambda x: torch._foreach_add([x], N)[0],
    "arange": lambda x: torch.arange(N, N + 1, device=x.device),
    "add_": lambda x: x[1:].add_(N),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize("call", CALLS)
def test_they_do_what_they_do_eagerly(call, dtype):
    outcomes = []
    for device in ("cpu", "lazyt", "lazyt"):
        x = torch.tensor([1, 0, 2]).to(dtype).to(device)
        try:
            outcomes.append((CALLS[call](x).cpu().tolist(), x.cpu().tolist()))
        except (RuntimeError, NotImplementedError) as e:
            outcomes.append((type(e), str(e).splitlines()[0]))
    assert outcomes[1] == outcomes[0]
    assert outcomes[2] == outcomes[0]
