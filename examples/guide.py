"""The code of sdk_docs/user_guide.md, in its order; each part asserts what the page says of it."""

import io

import lazyt
import torch
from torch import nn


def train() -> nn.Module:
    # [region train]
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to("lazyt")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = torch.randn(256, 64).to("lazyt"), torch.randint(10, (256,)).to("lazyt")

    for step in range(100):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())  # waits for this value, and for nothing else
    # [end]
    return model


def look(model: nn.Module) -> str:
    lazyt.metrics.reset()
    batch = torch.randn(8, 64).to("lazyt")
    # [region look]
    probabilities = model(batch).softmax(dim=1)  # recorded, not run
    print(lazyt.graph(probabilities))  # what would run: operators, shapes, dtypes, source lines
    print(lazyt.code(probabilities))  # the same as Python that runs eagerly when it is pasted
    print(probabilities.sum())  # now it runs
    print(lazyt.explain())  # why traces were cut, what was compiled, what ran on the host
    # [end]
    return lazyt.explain()


def measure(model: nn.Module) -> None:
    batch = torch.randn(8, 64).to("lazyt")
    # [region measure]
    begin, end = torch.lazyt.Event(enable_timing=True), torch.lazyt.Event(enable_timing=True)
    begin.record()
    results = [model(batch) for _ in range(100)]  # kept: what nobody can ask for is never computed
    end.record()
    torch.lazyt.synchronize()  # recording is not running: wait before a clock is read
    print(f"{begin.elapsed_time(end) / 100:.3f} ms a call")
    # [end]
    assert len(results) == 100


def late_error() -> str:
    # [region late]
    table = torch.randn(10, 4).to("lazyt")
    rows = table[torch.tensor([1, 12]).to("lazyt")]  # no error yet: the indices are not known
    try:
        print(rows)
    except IndexError as error:
        message = str(error)  # eager's type and text; below it, the line of table[...]
    # [end]
    assert "index 12 is out of bounds for dimension 0 with size 10" in message
    return message


def save(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    # [region save]
    torch.save(model.state_dict(), file)
    file.seek(0)
    copy = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    copy.load_state_dict(torch.load(file, map_location="cpu"))  # on a machine without lazyt, too
    # [end]
    batch = torch.randn(8, 64)
    torch.testing.assert_close(copy(batch), model(batch.to("lazyt")).cpu())
    return copy


def mixed(model: nn.Module) -> torch.dtype:
    images, labels = torch.randn(256, 64).to("lazyt"), torch.randint(10, (256,)).to("lazyt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # [region mixed]
    with torch.autocast("lazyt", dtype=torch.bfloat16):
        scores = model(images)
        loss = nn.functional.cross_entropy(scores, labels)
    loss.backward()
    optimizer.step()
    # [end]
    return scores.dtype


def compiled(model: nn.Module) -> torch.Tensor:
    images = torch.randn(256, 64).to("lazyt")
    # [region compiled]
    faster_on_cuda = torch.compile(model)
    print(faster_on_cuda(images).shape)  # recorded like model(images)
    # [end]
    return faster_on_cuda(images)


def main() -> None:
    torch.manual_seed(0)
    model = train()
    text = look(model)
    assert "0 operators ran on the host" in text, text
    measure(model)
    print(late_error())
    save(model)
    assert mixed(model) == torch.bfloat16
    assert compiled(model).device.type == "lazyt"


if __name__ == "__main__":
    main()
