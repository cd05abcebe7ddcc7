"""How many programs a loop compiles: the least that it needs, whatever its numbers do."""

import lazyt
import pytest
import torch
from torch import nn
from torch.nn import functional


def compiled(step, steps: int) -> list[int]:
    """Programs compiled after each step; the step's result stays alive until the next one."""
    counts = []
    for i in range(steps):
        kept = step(i)
        lazyt.mark_step(wait=True)
        counts.append(lazyt.metrics.counters().get("UncachedCompile", 0))
        del kept
    return counts


X = torch.linspace(-1, 1, 16).reshape(4, 4)

NUMBERS = {
    "a loop counter added": lambda x, i: x + i,
    "a loop counter multiplied": lambda x, i: x * i,
    "a loop counter divided by": lambda x, i: x / (i + 1),
    "a number that passes through 0 and 1": lambda x, i: x * (i - 2.0),
    "two numbers that are equal once": lambda x, i: x * (i / 4) + 0.5,
    "a bound": lambda x, i: x.clamp(max=i * 0.5),
    "a weight": lambda x, i: x.lerp(x * 2, i * 0.1),
    "the value of a fill": lambda x, i: torch.full((4,), i, device="lazyt") + x,
    "the value of an assignment": lambda x, i: x.clone().index_fill_(
        0, torch.tensor([1]).to("lazyt"), i * 1.5
    ),
    "the value of a mask": lambda x, i: x.masked_fill(x > 0, i * 1.0),
    "a comparison": lambda x, i: (x > i * 0.1).float(),
    "a tensor without dimensions from the CPU": lambda x, i: x + torch.tensor(i),
}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_that_changes_compiles_one_program(number):
    x = X.to("lazyt")
    assert compiled(lambda i: NUMBERS[number](x, i), 6)[-1] == 1


def test_a_seed_that_changes_compiles_one_program():
    def step(i):
        torch.manual_seed(i)
        return torch.rand(3, device="lazyt")

    assert compiled(step, 5)[-1] == 1


def test_a_generator_that_is_seeded_each_step_compiles_one_program():
    generator = torch.Generator(device="lazyt")
    x = X.to("lazyt")
    assert (
        compiled(lambda i: x + torch.rand(4, device="lazyt", generator=generator.manual_seed(i)), 5)[-1] == 1
    )


def test_the_next_batch_of_a_dataset_on_the_device_compiles_nothing():
    images, labels = torch.randn(512, 8), torch.randint(4, (512,))
    on_device = images.to("lazyt"), labels.to("lazyt")
    model = nn.Linear(8, 4)
    lazy_model = nn.Linear(8, 4).to("lazyt")
    lazy_model.load_state_dict(model.state_dict())
    kept = []

    def step(i):
        x, y = (t[i * 32 : (i + 1) * 32] for t in on_device)
        loss = functional.cross_entropy(lazy_model(x), y)
        kept.append(loss)
        return loss

    counts = compiled(step, 12)
    assert counts[-1] == 2, counts  # the second step is where the offset is seen to move
    for i, loss in enumerate(kept):
        x, y = images[i * 32 : (i + 1) * 32], labels[i * 32 : (i + 1) * 32]
        torch.testing.assert_close(loss.cpu(), functional.cross_entropy(model(x), y))


def test_rows_of_a_tensor_one_by_one_compile_two_programs():
    rows = torch.randn(10, 37)  # a shape of its own: another test may have compiled the same program
    on_device = rows.to("lazyt")
    kept = []

    def step(i):
        kept.append(on_device[i] * 2)

    assert compiled(step, 10)[-1] == 2
    for i, row in enumerate(kept):
        assert torch.equal(row.cpu(), rows[i] * 2)


MOVING_NUMBERS = {
    "a dropout's probability": (lambda x, i: functional.dropout(x, 0.1 * i), lambda i: (1.0, 0.1 * i)),
    "a normal's mean and deviation": (
        lambda x, i: torch.empty_like(x).normal_(i, 1 + i),
        lambda i: (i, None),
    ),
    "a uniform's bounds": (lambda x, i: torch.empty_like(x).uniform_(-i, i + 2), lambda i: (1.0, None)),
    "a probability": (lambda x, i: torch.empty_like(x).bernoulli_(i / 8), lambda i: (i / 8, 1 - i / 8)),
}


@pytest.mark.parametrize("name", MOVING_NUMBERS)
def test_a_number_of_a_random_operator_that_changes_compiles_two_programs(name):
    draw, expect = MOVING_NUMBERS[name]
    x, kept = torch.ones(20000).to("lazyt"), []
    assert compiled(lambda i: kept.append(draw(x, i)), 7)[-1] == 2  # the second is where it is seen to move
    for i, t in enumerate(kept):
        mean, zeros = expect(i)
        assert abs(t.mean().item() - mean) < 0.2
        if zeros is not None:
            assert abs((t == 0).float().mean().item() - zeros) < 0.05


CHANGING_NUMBERS = {  # constants of a program until they change
    "an exponent": lambda x, i: (x + 2) ** (i + 0.5),
    "an exponent that is an integer": lambda x, i: x**i,
    "an exponent in place": lambda x, i: (x + 2).pow_(i * 0.5),
    "where a range of integers begins": lambda x, i: torch.arange(i - 2, i + 2, device=x.device) * x,
    "where a range with steps begins": lambda x, i: x * torch.arange(3 * i, 3 * i - 8, -2, device=x.device),
    "where a range of a dtype begins": lambda x, i: torch.arange(
        i + 250, i + 254, device=x.device, dtype=torch.uint8
    ),
    "ends of a subdivision": lambda x, i: torch.linspace(i, 2 * i + 1.5, 4, device=x.device),
    "a momentum of statistics": lambda x, i: (
        functional.batch_norm(
            x, (mean := torch.zeros_like(x[0])), torch.ones_like(x[0]), training=True, momentum=1 / (i + 1)
        )
        + mean
    ),
}


@pytest.mark.parametrize("name", CHANGING_NUMBERS)
def test_a_number_that_is_a_constant_until_it_changes_compiles_two_programs(name):
    x, kept = X.to("lazyt"), []
    assert compiled(lambda i: kept.append(CHANGING_NUMBERS[name](x, i)), 7)[-1] <= 3, (
        lazyt.explain()
    )  # one for a 0
    for i, t in enumerate(kept):
        expected = CHANGING_NUMBERS[name](X, i)
        assert t.dtype == expected.dtype
        torch.testing.assert_close(t.cpu(), expected)


def test_a_base_that_changes_compiles_one_program():
    x, kept = X.to("lazyt"), []
    assert compiled(lambda i: kept.append((i * 0.5) ** x), 5)[-1] == 1
    for i, t in enumerate(kept):
        torch.testing.assert_close(t.cpu(), (i * 0.5) ** X)


def test_bounds_of_random_integers_that_change_compile_two_programs():
    x, kept = torch.empty(20000, dtype=torch.int32).to("lazyt"), []
    assert compiled(lambda i: kept.append(torch.empty_like(x).random_(i, 3 * i + 2)), 7)[-1] == 2
    for i, t in enumerate(kept):
        assert t.unique().tolist() == list(range(i, 3 * i + 2))
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.random_(0, 1 << 40)
    with pytest.raises(RuntimeError, match="to be less than|from"):
        x.random_(3, 3)


def test_an_integer_power_of_integers_is_checked_whatever_was_recorded_before():
    x = torch.arange(4).to("lazyt")
    assert [(x**i).tolist() for i in range(4)] == [[v**i for v in range(4)] for i in range(4)]
    with pytest.raises(RuntimeError, match="negative integer powers"):
        x**-1


def test_a_range_that_changes_its_length_is_another_program():
    x = torch.zeros(3, dtype=torch.int64).to("lazyt")
    ranges = [torch.arange(i, 2 * i + 1, device="lazyt") + x[0] for i in range(5)]
    assert [r.tolist() for r in ranges] == [list(range(i, 2 * i + 1)) for i in range(5)]


def test_a_number_out_of_range_is_an_error_also_in_a_step_that_is_known():
    x = torch.ones(4).to("lazyt")
    for i in range(4):
        x.normal_(0, 1 + i)
        lazyt.mark_step()
    with pytest.raises(RuntimeError, match="std >= 0"):
        x.normal_(0, -1)


def test_a_write_at_a_moving_place_compiles_two_programs():
    x, expected = torch.zeros(10, 4).to("lazyt"), torch.zeros(10, 4)

    def step(i):
        x[i] = i * 2

    assert compiled(step, 10)[-1] == 2
    for i in range(10):
        expected[i] = i * 2
    assert torch.equal(x.cpu(), expected)


def test_a_cache_that_is_filled_column_by_column_compiles_two_programs():
    cache, expected = torch.zeros(3, 2, 8, 5).to("lazyt"), torch.zeros(3, 2, 8, 5)
    new = [torch.randn(3, 2, 5) for _ in range(8)]
    read = []

    def step(i):
        cache[:, :, i] = new[i].to("lazyt")
        read.append(cache[:, :, i] * 2)

    assert compiled(step, 8)[-1] == 2
    for i in range(8):
        expected[:, :, i] = new[i]
        assert torch.equal(read[i].cpu(), new[i] * 2)
    assert torch.equal(cache.cpu(), expected)


def test_writes_at_fixed_places_stay_what_they_are_behind_a_deviation():
    x = torch.zeros(6).to("lazyt")
    for extra in (False, True, False, True):
        y = x + 1 if not extra else (x + 1) * 2
        for i in range(4):
            y[i] = i
        graph = lazyt._C.graph(y)
        assert "index_put" not in graph and graph.count("slice_scatter") >= 1
        lazyt.mark_step()


def test_a_part_is_read_before_the_step_writes_its_storage():
    data = torch.randn(8, 4)
    on_device = data.clone().to("lazyt")
    for i in range(4):
        part = on_device[i * 2 : i * 2 + 2] * 2
        on_device.add_(1)
        lazyt.mark_step()
        assert torch.equal(part.cpu(), data[i * 2 : i * 2 + 2] * 2)
        data.add_(1)
    assert torch.equal(on_device.cpu(), data)


def test_a_part_that_is_read_twice_is_a_part_twice():
    data = torch.randn(8, 11)  # a shape of its own: programs that other tests compiled are there still
    on_device = data.to("lazyt")
    kept = []
    assert compiled(lambda i: kept.append(on_device[i] * on_device[i]), 8)[-1] == 2
    assert "index" not in lazyt._C.graph(on_device[0] * on_device[0])
    for i, row in enumerate(kept):
        assert torch.equal(row.cpu(), data[i] * data[i])


def test_a_part_of_what_the_step_itself_made_is_no_input():
    x = X.to("lazyt")
    for i in range(4):
        made = x * 3
        row = made[i] + x[i]
        lazyt.mark_step()
        assert torch.equal(row.cpu(), X[i] * 3 + X[i])


def test_a_schedule_through_the_momentum_zero_and_one_compiles_a_first_and_a_steady_step():
    model = nn.Linear(4, 4).to("lazyt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.9, momentum=0.9)
    rates = [0.9, 0.5, 1.0, 0.0, 0.9, 0.1, 1.0]
    x = X.to("lazyt")

    def step(i):
        optimizer.param_groups[0]["lr"] = rates[i]
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    counts = compiled(step, len(rates))
    assert counts[-1] == 2, counts  # momentum buffers are made in the first


class Encoder(nn.Module):
    """BERT's shape: embeddings, post-norm encoder layers, a pooled head."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 16), nn.Embedding(8, 16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, activation="gelu", batch_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(16, 3)

    def forward(self, ids, padding):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        return self.head(torch.tanh(x[:, 0]))


def test_an_encoder_with_dropout_compiles_a_first_and_a_steady_step_and_a_last_batch():
    model = Encoder().to("lazyt")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)

    def step(batch):
        ids, labels = torch.randint(50, (batch, 8)), torch.randint(3, (batch,))
        padding = ids == 0
        optimizer.zero_grad()
        functional.cross_entropy(model(ids.to("lazyt"), padding.to("lazyt")), labels.to("lazyt")).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()

    batches = [4, 4, 4, 4, 3, 4, 4, 3]
    counts = compiled(lambda i: step(batches[i]), len(batches))
    assert counts[-1] == 3, counts
