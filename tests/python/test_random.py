"""Random numbers: right distributions, repeatable, and the same wherever traces are cut."""

import lazyt
import pytest
import torch


def draw(cut: bool) -> list[torch.Tensor]:
    torch.manual_seed(11)
    out = []
    for make in (
        lambda: torch.rand(1000, device="lazyt"),
        lambda: torch.randn(1000, device="lazyt"),
        lambda: torch.nn.functional.dropout(torch.ones(1000, device="lazyt"), 0.3),
        lambda: torch.randint(5, (1000,), device="lazyt"),
        lambda: torch.bernoulli(torch.full((1000,), 0.25, device="lazyt")),
    ):
        out.append(make())
        if cut:
            lazyt.mark_step(wait=True)
    return [t.cpu() for t in out]


def test_cuts_do_not_change_the_numbers():
    for whole, cut in zip(draw(False), draw(True), strict=True):
        assert torch.equal(whole, cut)


def test_the_same_seed_gives_the_same_numbers_and_draws_differ():
    first, second = draw(False), draw(False)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    a, b = torch.rand(100, device="lazyt"), torch.rand(100, device="lazyt")
    assert not torch.equal(a, b)


def test_distributions():
    n = 100_000
    torch.manual_seed(5)
    u = torch.rand(n, device="lazyt").cpu()
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.005
    g = torch.randn(n, device="lazyt").cpu()
    assert abs(g.mean()) < 0.02 and abs(g.std() - 1) < 0.02 and 0.02 < (g.abs() > 2).float().mean() < 0.07
    i = torch.randint(2, 7, (n,), device="lazyt").cpu()
    assert i.unique().tolist() == [2, 3, 4, 5, 6] and abs(i.float().mean() - 4) < 0.03


def test_dropout_drops_its_share_and_scales_the_rest():
    x = torch.ones(100_000, device="lazyt", requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    values = y.detach().cpu()
    dropped = (values == 0).float().mean().item()
    assert abs(dropped - 0.25) < 0.01
    assert torch.allclose(values[values != 0], torch.tensor(4 / 3))
    assert torch.equal(x.grad.cpu(), values)


def test_dropout_differs_from_step_to_step_of_one_program():
    x = torch.ones(1000, device="lazyt")
    steps = []
    for _ in range(4):
        steps.append(torch.nn.functional.dropout(x, 0.5))
        lazyt.mark_step()
    masks = [s.cpu() for s in steps]
    assert all(not torch.equal(a, b) for a, b in zip(masks, masks[1:], strict=False))
    assert lazyt.metrics.counter_value("UncachedCompile") <= 2


def test_state_of_the_generator_can_be_kept():
    state = torch.lazyt.get_rng_state()
    a = torch.rand(8, device="lazyt").cpu()
    torch.lazyt.set_rng_state(state)
    assert torch.equal(torch.rand(8, device="lazyt").cpu(), a)
    with torch.random.fork_rng(devices=[0], device_type="lazyt"):
        torch.rand(3, device="lazyt")
        inside = torch.lazyt.get_rng_state()
    assert not torch.equal(inside, torch.lazyt.get_rng_state())


def test_a_generator_of_its_own():
    def make():
        return torch.rand(8, device="lazyt", generator=torch.Generator(device="lazyt").manual_seed(3)).cpu()

    assert torch.equal(make(), make())
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(8, device="lazyt", generator=torch.Generator())


def test_seed_functions():
    torch.lazyt.manual_seed_all(123)
    assert torch.lazyt.initial_seed() == 123
    torch.manual_seed(77)
    assert torch.lazyt.initial_seed() == 77
    assert torch.lazyt.seed() == torch.lazyt.initial_seed()


def test_a_new_seed_recompiles_nothing():
    def step(seed):
        torch.manual_seed(seed)
        x = torch.nn.functional.dropout(torch.rand(64, device="lazyt") + torch.randn(64, device="lazyt"), 0.5)
        lazyt.mark_step(wait=True)
        return x.cpu()

    first = step(0)
    compiled = lazyt.metrics.counter_value("UncachedCompile")
    results = [step(seed) for seed in (1, 2**63 + 5, 12345, 0)]
    assert lazyt.metrics.counter_value("UncachedCompile") == compiled
    assert torch.equal(results[-1], first)
    assert not any(torch.equal(a, b) for a, b in zip(results, results[1:], strict=False))


def test_forked_states_draw_the_numbers_of_the_outside_afterwards():
    torch.manual_seed(4)
    expected = torch.rand(8, device="lazyt").cpu()
    for enabled in (True, False):
        torch.manual_seed(4)
        with torch.random.fork_rng(devices=[0], enabled=enabled, device_type="lazyt"):
            torch.manual_seed(9)
            torch.rand(3, device="lazyt")
        assert torch.equal(torch.rand(8, device="lazyt").cpu(), expected) == enabled


def test_states_of_all_devices_are_kept_and_restored():
    states = torch.lazyt.get_rng_state_all()
    a = torch.randn(8, device="lazyt").cpu()
    torch.lazyt.set_rng_state_all(states)
    assert torch.equal(torch.randn(8, device="lazyt").cpu(), a)
    generator = torch.Generator(device="lazyt").manual_seed(1)
    torch.rand(4, device="lazyt", generator=generator)
    other = torch.Generator(device="lazyt")
    other.set_state(generator.get_state())
    assert torch.equal(*(torch.rand(4, device="lazyt", generator=g).cpu() for g in (generator, other)))
    copied = generator.clone_state()
    assert torch.equal(*(torch.rand(4, device="lazyt", generator=g).cpu() for g in (generator, copied)))
