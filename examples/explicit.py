"""Explicitly lazy: move in, compute, move out. A result is computed once and kept."""

import lazyt
import torch


def run() -> tuple[torch.Tensor, int, int, str]:
    """(the result, launches for the first request, launches for the second, the error of mixing devices)."""
    a, b = torch.arange(4.0), torch.ones(4)
    x, b_lazy = lazyt.to_lazy((a, b))
    lazyt.metrics.reset()
    y = x * 2 + b_lazy  # recorded, not run
    first = lazyt.to_eager(y)
    once = lazyt.metrics.counter_value("FlushValueNeeded")
    second = lazyt.to_eager(y)
    twice = lazyt.metrics.counter_value("FlushValueNeeded") - once
    assert torch.equal(first, second)
    try:
        error = f"none: {x + b}"
    except RuntimeError as e:
        error = str(e)
    return first, once, twice, error


def main() -> None:
    result, once, twice, error = run()
    print("result:", result)
    print(f"launches: {once} when first asked, {twice} when asked again")
    print("a lazy and an eager tensor:", error.splitlines()[0])
    x = torch.ones(2, device="lazyt")
    print("0-dim CPU tensors and numbers are fine:", x + torch.tensor(1.5) + 1)


if __name__ == "__main__":
    main()
