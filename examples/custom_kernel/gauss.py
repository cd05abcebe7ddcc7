"""A kernel of one's own on lazyt: an operator by torch.library, its kernel a C function that the backend calls, or
CUDA C that it compiles.

Fits points with a sum of Gaussians. Needs a backend that takes kernels of users: LAZYT_BACKEND=onednn or cuda.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import lazyt
import torch


@torch.library.custom_op("gauss::sum", mutates_args=())
def gauss_sum(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor, s: float) -> torch.Tensor:
    """On any other device: with the matrix of all pairs."""
    return torch.exp(-torch.cdist(x, y).square() / s) @ b


@gauss_sum.register_fake
def _(x, y, b, s):
    return x.new_empty(x.shape[0])


def backward(ctx, gradient):
    x, y = ctx.saved_tensors
    return None, None, gauss_sum(y, x, gradient, ctx.s), None  # the sum is symmetric


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.s = inputs[3]


gauss_sum.register_autograd(backward, setup_context=setup_context)


def build() -> ctypes.CDLL:
    include = subprocess.run(
        ["lazyt", "sdk", "include"], check=True, capture_output=True, text=True
    ).stdout.strip()
    library = Path(tempfile.mkdtemp()) / "gauss.so"
    source = Path(__file__).with_name("gauss.c")
    command = ["cc", "-O2", "-shared", "-fPIC", f"-I{include}", str(source), "-lm", "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def main() -> None:
    if lazyt.backend()["name"] == "cuda":
        lazyt.add_kernel("gauss::sum", Path(__file__).with_name("gauss.cu").read_text(), entry="gauss_sum")
    else:
        lazyt.add_kernel("gauss::sum", build().gauss_sum)
    torch.manual_seed(0)
    x = torch.rand(400, 2)
    target = torch.sin(6 * x[:, 0]) * torch.cos(4 * x[:, 1])
    x, target, centres = x.to("lazyt"), target.to("lazyt"), torch.rand(60, 2).to("lazyt")
    b = torch.zeros(60, device="lazyt", requires_grad=True)
    optimizer = torch.optim.Adam([b], lr=0.05)
    for step in range(200):
        optimizer.zero_grad()
        loss = (gauss_sum(x, centres, b, 0.05) - target).square().mean()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == 199:
            print(f"step {step:3}  loss {loss.item():.4f}")
    print(f"programs compiled: {lazyt.metrics.counters()['UncachedCompile']}")


if __name__ == "__main__":
    main()
