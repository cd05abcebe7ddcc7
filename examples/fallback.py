"""An operator that the backend lacks runs on the host: right, counted, and forbidden where one wants that."""

import lazyt
import torch


def singular_values(matrix: torch.Tensor) -> torch.Tensor:
    return torch.linalg.svdvals(matrix) * 2


def run() -> tuple[torch.Tensor, torch.Tensor, dict[str, int], str]:
    """(eager's result, lazyt's, the counters of host operators, the error under 'deny')."""
    matrix = torch.arange(12.0).reshape(3, 4)
    lazyt.metrics.reset()
    lazy = singular_values(matrix.to("lazyt")).cpu()
    lazyt.wait_device_ops()
    host = lazyt.metrics.fallbacks()
    before = lazyt.fallback()
    lazyt.set_fallback("deny")
    try:
        lazyt.to_eager(singular_values(matrix.to("lazyt")))
        error = ""
    except RuntimeError as e:
        error = str(e)
    finally:
        lazyt.set_fallback(before)
    return singular_values(matrix), lazy, host, error


def main() -> None:
    eager, lazy, host, error = run()
    print("eager:", eager.tolist())
    print("lazyt:", lazy.tolist())
    for name, count in host.items():
        print(f"ran on the host: {name}, {count} x")
    print("with LAZYT_FALLBACK=deny:", error.splitlines()[0] if error else "no error: the backend has it all")


if __name__ == "__main__":
    main()
