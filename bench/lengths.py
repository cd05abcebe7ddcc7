"""Text, token by token, of lengths that the process has not met before, and of the same lengths again.

Each length is another program. Eager and lazyt take turns, 16 tokens each; each token is read by the host.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator

PARSER = argparse.ArgumentParser(description=__doc__)
PARSER.add_argument("--tokens", type=int, default=192, help="of the text (a recorder keeps 1,024 tapes)")
PARSER.add_argument("--rounds", type=int, default=3, help="of the known lengths")
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()
sys.argv[1:] = []  # models.py reads them, too

import common  # noqa: E402
import models  # noqa: E402

# isort: split
import lazyt  # noqa: E402
import torch  # noqa: E402

TURN = 16  # tokens


def reader(device: str, batch: int) -> Iterator[tuple[list[float], torch.Tensor]]:
    """Of each turn the seconds that its tokens took, and the tokens."""
    torch.manual_seed(0)
    gpt = models.Gpt(512, 256, 4, 4, 16 + ARGS.tokens).eval().to(device)
    generation = models.Generation.__new__(models.Generation)
    torch.nn.Module.__init__(generation)
    generation.gpt = gpt
    ids, place, kept = torch.arange(16 * batch).view(batch, 16).to(device), 0, [[] for _ in gpt.blocks]
    with torch.no_grad():
        for _ in range(ARGS.tokens // TURN):
            seconds, tokens = [], []
            for _ in range(TURN):
                begin = time.perf_counter()
                more = generation.next_token(ids, place, kept)
                tokens.append(more.cpu())
                seconds.append(time.perf_counter() - begin)
                place += ids.shape[1]
                ids = more
            yield seconds, torch.cat(tokens, 1)


def read(batch: int) -> tuple[dict[str, list[float]], bool]:
    """Seconds of each token of a text, and whether both sides chose the same."""
    taken, equal = {"eager": [], "lazyt": []}, True
    for eager, ours in zip(reader("cpu", batch), reader("lazyt", batch), strict=True):
        taken["eager"] += eager[0][1:]
        taken["lazyt"] += ours[0][1:]
        equal &= torch.equal(eager[1], ours[1])
    return taken, equal


def counters() -> list[int]:
    return [lazyt.metrics.counter_value(name) for name in ("UncachedCompile", "CompiledAhead")]


def main() -> int:
    torch.set_num_threads(1)
    print(common.header(backend=lazyt.backend()["name"], load=round(os.getloadavg()[0], 1)))
    print(f"{'medians':<20}{'eager ms':>10}{'lazyt ms':>10}{'x eager':>9}{'compiled':>10}{'ahead':>7}")
    read(2)  # libraries, code, memory
    rows, right = {}, True
    for name, rounds in (("new lengths", 1), ("known lengths", ARGS.rounds)):
        before = counters()
        texts = [read(1) for _ in range(rounds)]
        right &= all(equal for _, equal in texts)
        ms = {
            who: statistics.median([s for t, _ in texts for s in t[who]]) * 1e3 for who in ("eager", "lazyt")
        }
        compiled, ahead = (now - then for now, then in zip(counters(), before, strict=True))
        rows[name] = {**ms, "compiled": compiled, "ahead": ahead}
        ratio = ms["eager"] / ms["lazyt"]
        print(
            f"{name:<20}{ms['eager']:>10.3f}{ms['lazyt']:>10.3f}{ratio:>9.2f}{compiled:>10}{ahead:>7}",
            flush=True,
        )
    print("tokens equal" if right else "TOKENS DIFFER")
    common.write_json(ARGS.json, {"backend": lazyt.backend()["name"], "rows": rows, "equal": right})
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
