"""Random operators by rule PRG-7."""

import math

import torch
from conformance_corpus.corpus import NAMES, Arg, Corpus, grid


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox 4x32-10 of Salmon et al., 2011."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return tuple(c)


def word(seed: int, offset: int, i: int) -> int:
    """Word i by PRG-7."""
    counter = (offset + i // 4) & 0xFFFFFFFFFFFFFFFF
    seed &= 0xFFFFFFFFFFFFFFFF
    return philox((counter & 0xFFFFFFFF, counter >> 32, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[i % 4]


def wide_word(seed: int, offset: int, i: int) -> int:
    return word(seed, offset, 2 * i) | word(seed, offset, 2 * i + 1) << 32


def f32(v: float) -> float:
    return torch.tensor(v, dtype=torch.float64).float().item()


def make(folder):
    c = Corpus("random", "Random operators by rule PRG-7.")
    # Seeds that a double holds: the corpus is read as such.
    for seed, offset in ((0, 0), (1, 5), (0x12345690ABCDEF, 2**32 - 1), (-1, 2**40)):
        tag = f"s{seed & 0xFFFF:x}_o{offset:x}"
        host = [("i64", seed), ("i64", offset)]
        stream = [Arg("%h0"), Arg("%h1")]
        u = [(word(seed, offset, i) >> 8) * 2.0**-24 for i in range(130)]

        def uniform(*_, u=u):
            return torch.tensor([f32(f32(v * 3.0) - 1.0) for v in u], dtype=torch.float64)

        # from + (to - from) * u in two roundings: exact.
        c.case(
            f"uniform_{tag}",
            "lazyt::uniform",
            [[130], torch.float32, -1.0, 2.0, *stream],
            uniform,
            exact=True,
            host=host,
        )
        v = [(wide_word(seed, offset, i) >> 11) * 2.0**-53 for i in range(9)]
        c.case(
            f"uniform_f64_{tag}",
            "lazyt::uniform",
            [[9], torch.float64, 0.0, 1.0, *stream],
            lambda *_, v=v: [(torch.tensor(v, dtype=torch.float64), torch.float64)],
            exact=True,
            host=host,
        )

        def normal(*_, seed=seed, offset=offset):
            out = []
            for k in range(0, 66, 2):
                u1 = ((word(seed, offset, k) >> 8) + 1) * 2.0**-24
                u2 = (word(seed, offset, k + 1) >> 8) * 2.0**-24
                r = math.sqrt(-2 * math.log(u1))
                out += [r * math.cos(2 * math.pi * u2), r * math.sin(2 * math.pi * u2)]
            return torch.tensor([2.0 * x + 0.5 for x in out[:65]], dtype=torch.float64)

        c.case(
            f"normal_{tag}",
            "lazyt::normal",
            [[65], torch.float32, 0.5, 2.0, *stream],
            normal,
            rel=8,
            terms=64,
            host=host,
        )
        x = grid(6, 11)

        def dropout(t, *_, u=u):
            keep = torch.tensor([a >= f32(0.3) for a in u[:66]]).reshape(6, 11)
            return [torch.where(keep, t * f32(1 / (1 - f32(0.3))), 0.0), keep]

        c.case(f"dropout_{tag}", "lazyt::dropout", [x, 0.3, *stream], dropout, rel=4, host=host)
        p = (torch.arange(66) / 65).reshape(6, 11)
        c.case(
            f"bernoulli_{tag}",
            "lazyt::bernoulli",
            [p, *stream],
            lambda p, *_, u=u: (torch.tensor(u[:66], dtype=torch.float64).reshape(6, 11) < p).double(),
            exact=True,
            host=host,
        )
        # One word an element whatever the dtype.
        c.case(
            f"bernoulli_f64_{tag}",
            "lazyt::bernoulli",
            [p.double()[:3], *stream],
            lambda p, *_, u=u: (torch.tensor(u[:33], dtype=torch.float64).reshape(3, 11) < p).double(),
            exact=True,
            host=host,
        )
        for dtype in (torch.int64, torch.int32, torch.float32):
            draw = wide_word if dtype == torch.int64 else word
            low, high = -3, 1000

            def randint(*_, seed=seed, offset=offset, draw=draw, dtype=dtype, low=low, high=high):
                drawn = [low + draw(seed, offset, i) % (high - low) for i in range(67)]
                return [(torch.tensor(drawn), dtype)]

            c.case(
                f"randint_{NAMES[dtype]}_{tag}",
                "lazyt::randint",
                [[67], dtype, low, high, *stream],
                randint,
                exact=True,
                host=host,
            )
    c.write(folder)
