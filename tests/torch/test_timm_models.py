"""Convolutional models of timm with random weights: training steps and inference as in eager.

timm is no requirement of lazyt: `make test-models` installs it and runs these.
"""

import copy
import importlib.util

import lazyt
import pytest
import torch
import torchvision_library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (importlib.util.find_spec("timm") and importlib.util.find_spec("torchvision")),
        reason="timm or torchvision is not installed: make test-models",
    ),
]


@pytest.fixture(scope="module")
def timm():
    torchvision_library.stand_in()
    import timm

    return timm


def train(model, device, images, labels):
    model = model.to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        return torch.tensor(losses), model(images.to(device)).cpu()


@pytest.mark.parametrize("name", ["resnet18", "convnext_atto"])
def test_training_steps_equal_eager(timm, name):
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=10)
    images, labels = torch.randn(4, 3, 64, 64), torch.tensor([1, 7, 3, 3])
    lazyt.metrics.reset()
    losses, logits = train(copy.deepcopy(model), "lazyt", images, labels)
    expected_losses, expected_logits = train(model, "cpu", images, labels)
    torch.testing.assert_close(losses, expected_losses, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(logits, expected_logits, rtol=1e-2, atol=1e-2)
    assert lazyt.metrics.counters()["UncachedCompile"] <= 4
    assert set(lazyt.metrics.fallbacks()) <= {"aten::_local_scalar_dense"}
