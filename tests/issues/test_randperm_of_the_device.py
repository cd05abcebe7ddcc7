"""randperm without a generator took the CPU's and not the device's, which torch.lazyt.manual_seed sets."""

import pytest
import torch

CALLS = {
    "made": lambda: torch.randperm(50, device="lazyt"),
    "of another dtype": lambda: torch.randperm(50, device="lazyt", dtype=torch.float32),
    "into out": lambda: torch.randperm(50, out=torch.empty(0, dtype=torch.int64, device="lazyt")),
}


@pytest.mark.parametrize("case", CALLS)
def test_the_devices_seed_repeats_it_and_the_cpu_draws_nothing(case):
    cpu = torch.get_rng_state()
    torch.lazyt.manual_seed(3)
    first, second = CALLS[case]().tolist(), CALLS[case]().tolist()
    torch.lazyt.manual_seed(3)
    assert CALLS[case]().tolist() == first != second
    assert sorted(first) == list(range(50))
    assert torch.equal(cpu, torch.get_rng_state())
