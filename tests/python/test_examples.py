"""Each program of examples/ runs and shows what it claims."""

import gzip
import subprocess
import sys
from pathlib import Path

import mnist
import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["safety", "metrics", "timing", "fallback", "inspect_program", "explicit", "guide"])
def test_example_runs(name):
    process = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, timeout=110
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert len(process.stdout.splitlines()) >= 3


def test_safety_is_right_where_the_trace_is_wrong():
    import safety

    rows = safety.run()
    assert all(lazy == eager for _, eager, _, lazy in rows)
    assert any(traced != eager for _, eager, traced, _ in rows)


TUTORIAL_OPERATORS = """
convolution relu max_pool2d_with_indices native_dropout addmm _log_softmax nll_loss_forward
convolution_backward threshold_backward max_pool2d_with_indices_backward native_dropout_backward
mm sum _log_softmax_backward_data nll_loss_backward _copy_from
"""


def test_metrics_show_the_tutorials_operators():
    import metrics

    counters = metrics.train(batches=2)
    for name in TUTORIAL_OPERATORS.split():
        assert counters.get(f"lazyt::{name}", 0) > 0, name
    assert [n for n in counters if n.startswith("aten::")] == ["aten::_local_scalar_dense"]


def test_timing_overlaps():
    import timing

    best = min(
        (timing.measure(steps=30) for _ in range(3)), key=lambda t: t.wall / (t.recording + t.execution)
    )
    assert best.wall < best.recording + best.execution, best


def test_fallback_is_right_counted_and_denied():
    import fallback

    eager, lazy, host, error = fallback.run()
    torch.testing.assert_close(lazy, eager)
    if host:
        assert "deny" in error


def test_explicit_computes_once():
    import explicit

    result, once, twice, error = explicit.run()
    assert result.tolist() == [1, 3, 5, 7] and (once, twice) == (1, 0)
    assert "Expected all tensors to be on the same device" in error


def test_mnist_trains(capsys):
    accuracy = mnist.main(["--epochs", "1", "--seed", "1", "--log-interval", "5"])
    out = capsys.readouterr()
    assert accuracy > 0.7
    assert "Train Epoch: 1 [320/1500 (21%)]\tLoss: " in out.out + out.err


def write_idx(path: Path, data: torch.Tensor, compress: bool) -> None:
    header = bytes([0, 0, 8, data.dim()]) + b"".join(n.to_bytes(4, "big") for n in data.shape)
    content = header + bytes(data.flatten().tolist())
    if compress:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("compress", [False, True])
def test_mnist_reads_its_own_file_format(tmp_path, compress):
    for prefix, n in (("train", 5), ("t10k", 3)):
        images = (torch.arange(n * 784) % 256).to(torch.uint8).reshape(n, 28, 28)
        write_idx(tmp_path / f"{prefix}-images-idx3-ubyte", images, compress)
        write_idx(tmp_path / f"{prefix}-labels-idx1-ubyte", torch.arange(n).to(torch.uint8), compress)
    train, test = mnist.load_data(str(tmp_path))
    assert len(train) == 5 and len(test) == 3
    image, label = train[4]
    assert image.shape == (1, 28, 28) and label.item() == 4
    torch.testing.assert_close(image[0, 0, 0], torch.tensor((784 * 4 % 256 / 255 - 0.1307) / 0.3081))
