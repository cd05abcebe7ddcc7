"""Cost of recording an operator on 4x4 tensors from Python, against eager's own run and torch._lazy."""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

os.environ.setdefault("LAZYT_BACKEND", "null")  # the other core must not compute meanwhile
os.environ.setdefault("LAZYT_QUEUE", "1024")  # recording must not wait for launches of a busy machine

import common  # noqa: E402
import lazyt  # noqa: E402
import torch  # noqa: E402
from torch.optim.optimizer import _global_optimizer_post_hooks as HOOKS  # noqa: E402

DEVICES = {"eager": "cpu", "upstream": "lazy", "lazyt": "lazyt"}
Setup = Callable[[str], Callable[[], object]]


def binary(op: Callable) -> Setup:
    def setup(device: str):
        a, b = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device)
        return lambda: op(a, b)

    return setup


def unary(op: Callable, **options) -> Setup:
    def setup(device: str):
        a = torch.ones(4, 4, device=device, **options)
        return lambda: op(a)

    return setup


def view_chain(device: str):
    state = [torch.ones(4, 4, device=device)]

    def step():
        state[0] = state[0].t()

    return step


def mixed(device: str):
    a, b = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device)

    def eight():
        c = a @ b
        c = torch.relu(c + b)
        d = c[1:3] * 0.5
        return torch.softmax(d, 1).sum(0).mul_(2)

    return eight


@contextmanager
def no_launch() -> Iterator[None]:
    """Without what lazyt does at a step's end, which bench/launch.py measures by itself."""
    kept = dict(HOOKS)
    HOOKS.clear()
    yield
    HOOKS.update(kept)


@contextmanager
def no_update() -> Iterator[None]:
    """What SGD calls to update its parameters does nothing: torch.optim's own Python is left."""
    add_, torch._foreach_add_, torch.Tensor.add_ = torch._foreach_add_, _nothing, _nothing
    yield
    torch._foreach_add_ = add_
    del torch.Tensor.add_


def _nothing(*args, **kwargs) -> None:
    pass


AROUND: dict[Callable, list[Callable]] = {}  # a body: what it runs in, outside of the measured time


def optimizer_step(name: str, *around: Callable, foreach: bool | None = None, parameters: int = 20) -> Setup:
    def setup(device: str):
        ps = [torch.ones(4, 4, device=device, requires_grad=True) for _ in range(parameters)]
        for p in ps:
            p.grad = torch.ones(4, 4, device=device)
        step = getattr(torch.optim, name)(ps, lr=0.01, foreach=foreach).step
        AROUND[step] = list(around)
        return step

    return setup


def sgd_update(device: str):
    """The operators alone that torch.optim.SGD calls: of each parameter on a CPU, of all of them on lazyt."""
    ps, gs = ([torch.ones(4, 4, device=device) for _ in range(20)] for _ in range(2))

    def one_by_one():
        for p, g in zip(ps, gs, strict=True):
            p.add_(g, alpha=-0.01)

    return one_by_one if device != "lazyt" else lambda: torch._foreach_add_(ps, gs, alpha=-0.01)


# name: (what to set up, operators that one call counts for)
CASES: dict[str, tuple[Setup, int]] = {
    "add": (binary(torch.add), 1),
    "add, requires_grad": (unary(lambda a: a + a, requires_grad=True), 1),
    "add_": (binary(lambda a, b: a.add_(b)), 1),
    "mul by a Python scalar": (unary(lambda a: a * 1.5), 1),
    "relu": (unary(torch.relu), 1),
    "matmul": (binary(torch.matmul), 1),
    "softmax": (unary(lambda a: torch.softmax(a, 1)), 1),
    "slice view": (unary(lambda a: a[1:3]), 1),
    "transpose": (unary(lambda a: a.t()), 1),
    "view of a view of a view ...": (view_chain, 1),
    "eight mixed ops": (mixed, 8),
    # As written by users: eager CPU then takes parameter by parameter, lazyt lists of them.
    "one parameter of SGD": (optimizer_step("SGD", no_launch), 20),
    "  of it the update": (sgd_update, 20),
    "  of it torch.optim's Python": (optimizer_step("SGD", no_launch, no_update), 20),
    "one parameter of Adam": (optimizer_step("Adam", no_launch), 20),
    "one parameter of SGD, and launch": (optimizer_step("SGD"), 20),
    "one parameter of Adam, and launch": (optimizer_step("Adam"), 20),
    "one parameter of SGD, by itself": (optimizer_step("SGD", no_launch, foreach=False), 20),
    "one parameter of Adam, by itself": (optimizer_step("Adam", no_launch, foreach=False), 20),
}
OPTIMIZER_CALLS = 50


def discard(name: str) -> None:
    """Runs what is pending, outside of the measured time."""
    if name == "lazyt":
        lazyt.mark_step(wait=True)
    elif name == "upstream":
        torch._lazy.mark_step()


def measure(setup: Setup, calls: int, ops: int, rounds: int, names: list[str]) -> dict[str, float]:
    """Median microseconds per operator."""
    bodies = {name: setup(DEVICES[name]) for name in names}

    def one(name: str) -> Callable[[], float]:
        body = bodies[name]

        def run() -> float:
            with ExitStack() as around:
                for context in AROUND.get(body, ()):
                    around.enter_context(context())
                begin = time.thread_time()  # of this thread alone: the machine is shared
                for _ in range(calls):
                    body()
                seconds = time.thread_time() - begin
            discard(name)
            return seconds / calls / ops * 1e6

        return run

    candidates = {name: one(name) for name in names}
    for name in names:  # the first two rounds record and compile
        candidates[name](), candidates[name]()
    return common.medians(common.interleaved(candidates, rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", default="eager,upstream", help="comma list of eager, upstream")
    parser.add_argument("--calls", type=int, default=200, help="calls in a round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", metavar="FILE", help="write the numbers")
    args = parser.parse_args()
    names = [*filter(None, args.against.split(",")), "lazyt"]
    if "upstream" in names:
        common.init_upstream()
    print(common.header(backend=lazyt.backend()["name"]))
    print(f"us per operator, {args.rounds} rounds of {args.calls}; ratio below 1: lazyt is cheaper")
    print(f"{'':<32}" + "".join(f"{n:>10}" for n in names) + "".join(f"{'/ ' + n:>12}" for n in names[:-1]))
    results = {}
    for case, (setup, ops) in CASES.items():
        if args.only not in case:
            continue
        calls = OPTIMIZER_CALLS if ops == 20 else args.calls
        us = measure(setup, calls, ops, args.rounds, names)
        results[case] = us
        print(
            f"{case:<32}"
            + "".join(f"{us[n]:>10.2f}" for n in names)
            + "".join(f"{us['lazyt'] / us[n]:>12.2f}" for n in names[:-1]),
            flush=True,
        )
    common.write_json(args.json, {"us_per_op": results})


if __name__ == "__main__":
    main()
