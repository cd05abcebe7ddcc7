"""Write the reference values of the conformance suite, tests/conformance/corpus/*.lzt. Needs torch; by hand.

A file holds cases; a case is lines

    case NAME
    program(...) {          the program's text, as `ir/text.h` describes it
    }
    in V V V ...            for each input: its elements in row-major order of its dims, whatever its strides
    out REL ABS V V V ...   for each output: the same, and its error bound: |got - V| <= ABS + REL * |V|

Values are computed by PyTorch in float64 from inputs that the dtype of the program holds exactly. Bounds are
in units of the dtype's epsilon: a few for what is rounded once or twice, as many as there are terms, times
the sum of the terms' magnitudes, for sums. Random operators are computed from rule PRG-7 alone. The cases of
each area are in a file of their own in conformance_corpus.
"""

import argparse
from pathlib import Path

import torch
from conformance_corpus import (
    activations,
    along,
    arrangements,
    attention,
    chains,
    contractions,
    foreach,
    functions,
    indexing,
    integers,
    lists,
    losses,
    moves,
    normalizations,
    numbers,
    optimizers,
    pointwise,
    pooling,
    products,
    random,
    reductions,
    resampling,
    sizes,
    totals,
    views,
    windows,
)

ROOT = Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "tests/conformance/corpus")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    # What an area draws depends on those before it.
    torch.manual_seed(0)
    areas = (
        pointwise,
        views,
        reductions,
        contractions,
        pooling,
        foreach,
        random,
        functions,
        along,
        normalizations,
        products,
        attention,
        indexing,
        moves,
        resampling,
        losses,
        integers,
        chains,
        windows,
        activations,
        numbers,
        totals,
        arrangements,
        lists,
        optimizers,
        sizes,
    )
    for area in areas:
        area.make(folder)
    print(f"{sum(f.stat().st_size for f in folder.glob('*.lzt'))} bytes in {folder}")


if __name__ == "__main__":
    main()
