"""A branch on a tensor: baked in by torch.jit.trace, right on lazyt for every input."""

import warnings

import lazyt  # noqa: F401
import torch


def add_two_maybe(t: torch.Tensor, maybe: torch.Tensor) -> torch.Tensor:
    if maybe:
        return t + 2
    return t


def run() -> list[tuple[bool, float, float, float]]:
    """For both inputs: (maybe, eager's sum, the traced module's, lazyt's)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(add_two_maybe, (torch.ones(1), torch.ones(1)))
    rows = []
    for maybe in (1, 0):
        t, m = torch.ones(3), torch.tensor([maybe])
        lazy = add_two_maybe(t.to("lazyt"), m.to("lazyt"))
        rows.append(
            (bool(maybe), add_two_maybe(t, m).sum().item(), traced(t, m).sum().item(), lazy.sum().item())
        )
    return rows


def main() -> None:
    print(f"{'maybe':<8}{'eager':>8}{'traced':>8}{'lazyt':>8}")
    for maybe, eager, traced, lazy in run():
        note = "   the trace is silently wrong" if traced != eager else ""
        print(f"{maybe!s:<8}{eager:>8}{traced:>8}{lazy:>8}{note}")


if __name__ == "__main__":
    main()
