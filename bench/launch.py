"""Launch of a replayed step by the number of its operators and of its inputs and outputs, with the null plugin.

cut: processor time of the recording thread in mark_step, with the launch itself where it runs there. executor: time of
the executor thread from taking the launch to its end. Neither may grow with the operators."""

import argparse
import os
import statistics
import time

os.environ["LAZYT_BACKEND"] = "null"

import common  # noqa: E402
import lazyt  # noqa: E402
import torch  # noqa: E402

NODES, ENDS = (10, 100, 1000, 5000), (2, 20, 200)


def measure(nodes: int, ends: int, rounds: int) -> tuple[float, float]:
    """Microseconds: cut, executor. Half of the ends are inputs, half outputs."""
    inputs = [torch.ones(4, 4).to("lazyt") for _ in range(ends // 2)]

    def record() -> list[torch.Tensor]:
        kept = [x + x for x in inputs]
        y = kept[-1]
        for _ in range(nodes - len(kept)):
            y = y + inputs[0]
        return [*kept[:-1], y]

    cuts, busy = [], []
    for _ in range(rounds + 3):
        kept = record()
        before = lazyt._C.executor_busy_seconds()
        begin = time.thread_time()
        lazyt.mark_step()
        cuts.append(time.thread_time() - begin)
        lazyt.wait_device_ops()
        busy.append(lazyt._C.executor_busy_seconds() - before)
        del kept
    return statistics.median(cuts[3:]) * 1e6, statistics.median(busy[3:]) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--json", metavar="FILE", help="write the numbers")
    args = parser.parse_args()
    print(common.header(backend=lazyt.backend()["name"]))
    print(
        f"{'operators':>10}{'ends':>6}{'cut us':>10}{'executor us':>13}{'together':>10}{'20 + 0.2 x ends':>17}"
    )
    rows = []
    for ends in ENDS:
        for nodes in NODES:
            if nodes < ends // 2:
                continue
            cut, busy = measure(nodes, ends, args.rounds)
            rows.append({"nodes": nodes, "ends": ends, "cut_us": cut, "executor_us": busy})
            print(
                f"{nodes:>10}{ends:>6}{cut:>10.1f}{busy:>13.1f}{cut + busy:>10.1f}{20 + 0.2 * ends:>17.1f}",
                flush=True,
            )
    common.write_json(args.json, {"launches": rows})


if __name__ == "__main__":
    main()
