"""The layer `record`: a training run, once more in a process without Python and PyTorch, bit by bit."""

import re
import shutil
from pathlib import Path

import pytest
from test_new_plugin import commands, pytestmark, shell  # noqa: F401

# The network of the tutorial in small: convolutions run on the host, so that islands are recorded too.
STEP = """
import torch, lazyt
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)).to("lazyt")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 1, 8, 8).to("lazyt"), torch.randint(0, 10, (8,)).to("lazyt")
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    if not shutil.which("cc"):
        pytest.skip("cc is not installed")
    folder = tmp_path_factory.mktemp("acme")
    shell("lazyt new-plugin acme --folder .", folder)
    shell(commands(folder)[0], folder)
    return folder / "build" / "lazyt_acme.so"


@pytest.mark.parametrize("layers", ["record:data", "validate:abort,record:data"])
def test_a_recorded_run_replays_bit_by_bit(plugin, tmp_path, layers):
    (tmp_path / "step.py").write_text(STEP)
    run = {"LAZYT_BACKEND": str(plugin), "LAZYT_LAYERS": layers, "LAZYT_RECORD": str(tmp_path / "run.lzr")}
    losses = shell("python step.py", tmp_path, **run).split()
    assert len(losses) == 3
    said = shell(f"lazyt replay run.lzr --backend {plugin}", tmp_path, LAZYT_LAYERS="validate:abort")
    launches, reads = map(int, re.search(r"(\d+) launches, (\d+) reads, all as recorded", said).groups())
    assert launches >= 3
    assert reads >= 3
    linked = shell("ldd $(which lazyt)", tmp_path)
    assert not re.search("torch|python", linked)


# The network, the loss and the optimizer of examples/mnist.py, on digits that need no download.
MNIST = """
import sys
sys.path.insert(0, sys.argv[1])
import torch, lazyt
from mnist import Net
torch.manual_seed(1)
net = Net().to("lazyt")
optimizer = torch.optim.Adadelta(net.parameters(), lr=1.0)
x, y = torch.randn(64, 1, 28, 28).to("lazyt"), torch.randint(0, 10, (64,)).to("lazyt")
for _ in range(4):
    optimizer.zero_grad()
    loss = torch.nn.functional.nll_loss(net(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
print(net.fc2.weight.cpu().sum().item())
"""


def test_the_mnist_step_on_onednn_replays_without_python_and_libtorch(tmp_path):
    if not re.search("^onednn ", shell("lazyt list", tmp_path), re.MULTILINE):
        pytest.skip("the oneDNN plugin is not installed")
    examples = Path(__file__).resolve().parents[2] / "examples"
    (tmp_path / "step.py").write_text(MNIST)
    run = {"LAZYT_BACKEND": "onednn", "LAZYT_FALLBACK": "deny", "LAZYT_RECORD": str(tmp_path / "run.lzr")}
    losses = shell(f"python step.py {examples}", tmp_path, LAZYT_LAYERS="record:data", **run).split()
    assert len(set(losses)) == 5
    for _ in range(2):  # bit by bit, also from one process to the next
        said = shell("lazyt replay run.lzr --backend onednn", tmp_path)
        launches, reads = map(int, re.search(r"(\d+) launches, (\d+) reads, all as recorded", said).groups())
        assert launches >= 4 and reads >= 5
    loaded = shell("LD_DEBUG=files lazyt replay run.lzr --backend onednn 2>&1", tmp_path)
    assert "lazyt_onednn.so" in loaded
    assert not re.search(r"lib(torch|python|c10)", loaded)


def test_another_outcome_is_told(plugin, tmp_path):
    (tmp_path / "step.py").write_text(STEP)
    run = {
        "LAZYT_BACKEND": str(plugin),
        "LAZYT_LAYERS": "record:data",
        "LAZYT_RECORD": str(tmp_path / "run.lzr"),
    }
    shell("python step.py", tmp_path, **run)
    said = shell("lazyt replay run.lzr --backend null || true", tmp_path)
    assert re.search(r"[1-9]\d* differ from what was recorded", said)


def test_bytes_are_recorded_only_if_asked_for(plugin, tmp_path):
    (tmp_path / "step.py").write_text(STEP)
    run = {"LAZYT_BACKEND": str(plugin), "LAZYT_RECORD": str(tmp_path / "run.lzr")}
    shell("python step.py", tmp_path, LAZYT_LAYERS="record", **run)
    bare = (tmp_path / "run.lzr").stat().st_size
    assert "none compared" in shell(f"lazyt replay run.lzr --backend {plugin}", tmp_path)
    shell("python step.py", tmp_path, LAZYT_LAYERS="record:data", **run)
    assert (tmp_path / "run.lzr").stat().st_size > bare + 4 * 144 * 10


def test_files_that_are_no_recording_are_refused(plugin, tmp_path):
    (tmp_path / "step.py").write_text(STEP)
    run = {
        "LAZYT_BACKEND": str(plugin),
        "LAZYT_LAYERS": "record:data",
        "LAZYT_RECORD": str(tmp_path / "run.lzr"),
    }
    shell("python step.py", tmp_path, **run)
    whole = (tmp_path / "run.lzr").read_bytes()
    for name, content, why in (
        ("empty", b"", "is not what the layer"),
        ("cut", whole[:-5], "is damaged or cut off"),
        ("wrong", whole[:8] + b"\xff" * 64, "is damaged or cut off"),
    ):
        (tmp_path / name).write_bytes(content)
        assert why in shell(f"! lazyt replay {name} --backend {plugin} 2>&1", tmp_path)
    assert "set it" in shell(f"! LAZYT_LAYERS=record lazyt info {plugin} 2>&1", tmp_path)
