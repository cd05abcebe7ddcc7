"""Products of 8-bit integers."""

import torch
from conformance_corpus.corpus import Corpus


def make(folder):
    c = Corpus("integers", "Products of 8-bit integers.")
    shapes = {"": (6, 70, 7), "_row": (1, 9, 40), "_column": (40, 9, 1), "_empty_sum": (3, 0, 2)}
    for kind, low, dtype in (("i8", -128, torch.int8), ("u8", 0, torch.uint8)):
        for tag, (m, k, n) in shapes.items():
            x = torch.randint(low, low + 256, (m, k), dtype=dtype)
            y = torch.randint(-128, 128, (k, n), dtype=torch.int8)
            for strided in ("", "_strided"):
                operands = [t.t().contiguous().t() if strided else t for t in (x, y)]
                c.case(
                    f"int_mm_{kind}{tag}{strided}",
                    "aten::_int_mm",
                    operands,
                    lambda x, y: (x.double() @ y.double()).int(),
                    exact=True,
                )
    # Sums that no 16 bits hold, of the extremes.
    for tag, value in (("lowest", -128), ("highest", 127)):
        x = torch.full((3, 300), value, dtype=torch.int8)
        y = torch.full((300, 2), -128, dtype=torch.int8)
        c.case(
            f"int_mm_{tag}", "aten::_int_mm", [x, y], lambda x, y: (x.double() @ y.double()).int(), exact=True
        )
    c.write(folder)
