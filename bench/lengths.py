"""Text of lengths that the process has not met before, and of the same lengths again.

Each length is another program. Token by token, each read by the host, eager and lazyt in turns of 16; then
whole texts, read and trained on, a text each in turn.
"""

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator

PARSER = argparse.ArgumentParser(description=__doc__)
PARSER.add_argument("--tokens", type=int, default=192, help="of the text (a recorder keeps 1,024 tapes)")
PARSER.add_argument("--texts", type=int, default=24, help="whole ones, of as many lengths below 256")
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


def text_step(device: str, trains: bool) -> Callable[[torch.Tensor], float]:
    """What is done with a text; its result is the loss."""
    torch.manual_seed(0)
    gpt = models.Gpt(512, 256, 4, 4, 256).train(trains).to(device)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-4)

    def step(ids: torch.Tensor) -> float:
        ids = ids.to(device)
        with torch.set_grad_enabled(trains):
            loss = torch.nn.functional.cross_entropy(gpt(ids[:, :-1])[0], ids[0, 1:])
        if trains:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    return step


def whole_texts(trains: bool) -> tuple[list[dict[str, list[float]]], bool]:
    """Seconds of texts of new lengths and of known ones, and whether both sides had the same losses."""
    sides = {"eager": text_step("cpu", trains), "lazyt": text_step("lazyt", trains)}
    drawn = torch.Generator().manual_seed(0)
    lengths = (torch.randperm(208, generator=drawn)[: ARGS.texts] + 48).tolist()
    texts = [torch.randint(512, (1, n), generator=drawn) for n in lengths]
    taken, equal = [{who: [] for who in sides} for _ in range(2)], True
    for turn in range(1 + ARGS.rounds):
        for ids in texts:
            losses = []
            for who, step in sides.items():
                begin = time.perf_counter()
                losses.append(step(ids))
                taken[turn > 0][who].append(time.perf_counter() - begin)
            equal &= math.isclose(*losses, rel_tol=1e-3)
    return taken, equal


def counters() -> list[int]:
    return [lazyt.metrics.counter_value(name) for name in ("UncachedCompile", "CompiledAhead")]


def main() -> int:
    torch.set_num_threads(1)
    print(common.header(backend=lazyt.backend()["name"], load=round(os.getloadavg()[0], 1)))
    print(f"{'medians':<24}{'eager ms':>10}{'lazyt ms':>10}{'x eager':>9}{'compiled':>10}{'ahead':>10}")
    read(2)  # libraries, code, memory
    rows, right = {}, True

    def row(name: str, taken: list[dict[str, list[float]]], **more: int) -> None:
        ms = {who: statistics.median([s for t in taken for s in t[who]]) * 1e3 for who in ("eager", "lazyt")}
        rows[name] = {**ms, **more}
        ratio, counts = ms["eager"] / ms["lazyt"], "".join(f"{n:>10}" for n in more.values())
        print(f"{name:<24}{ms['eager']:>10.3f}{ms['lazyt']:>10.3f}{ratio:>9.2f}{counts}", flush=True)

    for name, rounds in (("tokens, new", 1), ("tokens, known", ARGS.rounds)):
        before = counters()
        texts = [read(1) for _ in range(rounds)]
        right &= all(equal for _, equal in texts)
        compiled, ahead = (now - then for now, then in zip(counters(), before, strict=True))
        row(name, [taken for taken, _ in texts], compiled=compiled, ahead=ahead)
    for what, trains in (("whole texts", False), ("training", True)):
        taken, equal = whole_texts(trains)
        right &= equal
        row(f"{what}, new", taken[:1])
        row(f"{what}, known", taken[1:])
    print("tokens and losses equal" if right else "TOKENS OR LOSSES DIFFER")
    common.write_json(ARGS.json, {"backend": lazyt.backend()["name"], "rows": rows, "equal": right})
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
