"""Look inside: the pending program of a tensor, with shapes and source lines, and as Python calls."""

import lazyt
import torch


def pending() -> torch.Tensor:
    x = torch.linspace(0, 1, 6).reshape(2, 3).to("lazyt")
    weight = torch.ones(4, 3, device="lazyt")
    bias = torch.zeros(4, device="lazyt")
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias)) * 2


def run_code(text: str) -> list[torch.Tensor]:
    """What pasting it does: the results, for inputs that are made up in it."""
    scope: dict = {}
    exec(text, scope)
    return scope["results"]


def main() -> None:
    y = pending()
    print(lazyt.graph(y))
    code = lazyt.code(y)
    print(code)
    print("pasted, with made-up inputs:", run_code(code))
    print("on the device:", y)


if __name__ == "__main__":
    main()
