"""Operators: every (operator, dtype) of the opset that the backend takes, against eager CPU.

A row runs four calls, each with operands of its own, as a step; eager's and lazyt's in turns within one process, on about
a million elements (matrix products, convolutions, attention: what takes eager a few ms). A step is recording, launch and
waiting. What is slower than --slowest is measured again, longer; if it still is and SLOWER names no reason, the bench fails. That
a row is one pass over memory is no reason until it is measured: in turns with the row lazyt copies as many bytes, and the row
may take 1 / --slowest of that time. Views and empty results move no data and are not timed; operators without a row are listed.
"""

import argparse
import os
import re
import statistics
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument(
    "--only", default="", help="operators, ';' between: those whose name contains one of these"
)
PARSER.add_argument("--dtypes", default="float32,float64,bfloat16,float16,int64,int32,bool")
PARSER.add_argument("--slowest", type=float, default=0.8, help="ratio below which a row needs a reason")
PARSER.add_argument("--rounds", type=int, default=5)
PARSER.add_argument("--threads", type=int, default=1)
PARSER.add_argument("--slow-only", action="store_true", help="print only rows below --slowest")
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()
os.environ.setdefault("LAZYT_BACKEND", "onednn")
os.environ["LAZYT_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(ARGS.threads)

import common  # noqa: E402
import lazyt  # noqa: E402
import torch  # noqa: E402

OPSET = Path(__file__).resolve().parents[1] / "abi" / "ops.toml"
ROWS, COLUMNS = 1024, 1024
CALLS = 4  # of a step
SECONDS = 0.006  # about how long a candidate runs in a round

# Why a row may be slower than eager.
ONE_PASS = "one pass over memory"
BY_ELEMENT = "of f64 the C library's function, element by element"
WIDE = "a 64-bit number takes 64 random bits (PRG-7), of which eager draws 32 where the range is small"
F32_PRODUCTS = "eager multiplies f16 as it is; we convert, and multiply f32"
BY_MACHINE = "a division and two choices by instructions that hand a tile on: what eager keeps in registers is spilled"
PLACES_IN_F64 = "places are counted in f64, as arange's are"
IN_F64 = "f32 is multiplied in f64, whose range no partial product leaves; eager's may overflow on the way"
F64_PRODUCTS = "oneDNN has none of f64; with AVX-512 ours reach 0.7 to 0.9 of MKL's"
# By an operator's name, or name and dtype.
SLOWER: dict[str, str] = {
    "lgamma": BY_ELEMENT,
    "lazyt:randint": WIDE,
    "linspace": PLACES_IN_F64,
    "linear float16": F32_PRODUCTS,
    "addmm float16": F32_PRODUCTS,
    "prod float32": IN_F64,
    "prod.dim_int float32": IN_F64,
    **{f"{name} float64": F64_PRODUCTS for name in ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear")},
} | dict.fromkeys(
    """add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar maximum minimum fmax
    fmin abs neg reciprocal square sqrt round floor ceil trunc frac sign sgn clamp clamp.Tensor clamp_min clamp_max relu relu6
    leaky_relu hardtanh hardswish hardsigmoid threshold threshold_backward leaky_relu_backward elu_backward silu_backward
    softplus_backward hardtanh_backward hardswish_backward hardsigmoid_backward sigmoid_backward tanh_backward addcmul addcdiv
    lerp.Scalar lerp.Tensor clone copy fill.Scalar fill.Tensor zeros ones full zeros_like ones_like full_like new_zeros new_full
    eq.Scalar eq.Tensor ne.Scalar ne.Tensor lt.Scalar lt.Tensor le.Scalar le.Tensor gt.Scalar gt.Tensor ge.Scalar ge.Tensor
    bitwise_not bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor logical_not logical_and logical_or logical_xor copysign.Tensor
    isinf nan_to_num flip roll repeat constant_pad_nd pad amax amin prod prod.dim_int
    _foreach_neg _foreach_abs _foreach_sign _foreach_add.ScalarList
    _foreach_add.Tensor _foreach_sub.List _foreach_mul.List _foreach_maximum.List _foreach_maximum.Scalar
    _foreach_minimum.List _foreach_clamp_min.Scalar _foreach_addcdiv.ScalarList
    sum sum.dim_IntList mean mean.dim cat stack slice_scatter select_scatter slice_backward select_backward
    """.split(),  # noqa: SIM905
    ONE_PASS,
)
if torch.backends.cpu.get_cpu_capability() != "AVX512":
    SLOWER |= {"hardswish_backward bfloat16": BY_MACHINE, "hardswish_backward float16": BY_MACHINE}
# Nothing to time: no data moves, or the result is what memory held.
UNTIMED = set(
    "t permute transpose.int slice.Tensor select.int expand view reshape squeeze.dims unsqueeze diagonal as_strided alias "
    "unfold split.Tensor split_with_sizes unbind.int chunk empty_like empty.memory_format view_as_real view_as_complex "
    "scalar_tensor real imag lift_fresh_copy".split()  # noqa: SIM905
)

Tensor = torch.Tensor


class Make:
    """Operands of one dtype."""

    def __init__(self, dtype: torch.dtype, seed: int):
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        shape = shape or (ROWS, COLUMNS)
        if self.dtype == torch.bool:
            return torch.rand(shape, generator=self.generator) < 0.5
        if not self.dtype.is_floating_point:
            return torch.randint(1, 9, shape, generator=self.generator, dtype=self.dtype)
        return torch.randn(shape, generator=self.generator).to(self.dtype)

    def unit(self, *shape: int) -> Tensor:
        """Between 0.05 and 0.95."""
        return (torch.rand(shape or (ROWS, COLUMNS), generator=self.generator) * 0.9 + 0.05).to(self.dtype)

    def index(self, bound: int, *shape: int) -> Tensor:
        return torch.randint(0, bound, shape, generator=self.generator)

    def mask(self, *shape: int) -> Tensor:
        return torch.rand(shape or (ROWS, COLUMNS), generator=self.generator) < 0.3

    def many(self, count: int = 20, *shape: int) -> list[Tensor]:
        return [self(*(shape or (256, 256))) for _ in range(count)]

    @property
    def number(self) -> float | int | bool:
        return 0.75 if self.dtype.is_floating_point else True if self.dtype == torch.bool else 3

    @property
    def flat(self) -> Tensor:
        return self(ROWS * COLUMNS)


def norm_sizes(m: Make) -> tuple[Tensor, Tensor, Tensor]:
    return m(32, 64, 28, 28), m(64), m(64)


def saved_statistics(m: Make) -> tuple[Tensor, Tensor]:
    kind = torch.float64 if m.dtype == torch.float64 else torch.float32
    return torch.zeros(64, dtype=kind), torch.ones(64, dtype=kind)


def heads(m: Make) -> list[Tensor]:
    return [m(2, 8, 256, 64) for _ in range(3)]


def adam(m: Make, lr: Any) -> tuple[list[Any], dict[str, Any]]:
    state = [
        m.many(),
        m.many(),
        m.many(),
        [x.abs() for x in m.many()],
        [],
        [torch.ones(()) for _ in range(20)],
    ]
    return state, {
        "lr": lr,
        "beta1": 0.9,
        "beta2": 0.999,
        "weight_decay": 0.0,
        "eps": 1e-8,
        "amsgrad": False,
        "maximize": False,
    }


def sgd(m: Make, lr: Any) -> tuple[list[Any], dict[str, Any]]:
    keywords = {
        "weight_decay": 0.0,
        "momentum": 0.9,
        "lr": lr,
        "dampening": 0.0,
        "nesterov": False,
        "maximize": False,
        "is_first_step": False,
    }
    return [m.many(), m.many(), m.many()], keywords


# Arguments that the schema alone does not tell: positional ones, or (positional, by keyword).
BY_HAND: dict[str, Callable[[Make], Any]] = {
    "pow.Tensor_Scalar": lambda m: [
        m.unit() if m.dtype.is_floating_point else m(),
        2.5 if m.dtype.is_floating_point else 3,
    ],
    "pow.Tensor_Tensor": lambda m: [
        m.unit() if m.dtype.is_floating_point else m(),
        m.unit() if m.dtype.is_floating_point else m(),
    ],
    "pow.Scalar": lambda m: [2, m()],
    "div.Tensor_mode": lambda m: (
        [m(), m.unit() if m.dtype.is_floating_point else m()],
        {"rounding_mode": "floor"},
    ),
    "div.Scalar_mode": lambda m: ([m(), 3], {"rounding_mode": "trunc"}),
    "where.self": lambda m: [m.mask(), m(), m()],
    "where.ScalarSelf": lambda m: [m.mask(), m.number, m()],
    "where.ScalarOther": lambda m: [m.mask(), m(), m.number],
    "masked_fill.Scalar": lambda m: [m(), m.mask(), m.number],
    "masked_fill.Tensor": lambda m: [m(), m.mask(), torch.tensor(m.number, dtype=m.dtype)],
    "masked_scatter": lambda m: [m(), m.mask(), m()],
    "clamp": lambda m: [m(), 0, 2],
    "clamp.Tensor": lambda m: [m(), m(1, COLUMNS), None],
    "threshold": lambda m: [m(), 1, 2],
    "elu_backward": lambda m: [m(), 1.0, 1.0, 1.0, False, m()],
    "log_sigmoid_backward": lambda m: [m(), m(), m(0)],
    "mm": lambda m: [m(256, 256), m(256, 256)],
    "_int_mm": lambda m: [m(1024, 1024), Make(torch.int8, 9)(1024, 1024)],
    "bmm": lambda m: [m(8, 128, 128), m(8, 128, 128)],
    "addmm": lambda m: [m(256), m(256, 256), m(256, 256)],
    "baddbmm": lambda m: [m(8, 128, 128), m(8, 128, 128), m(8, 128, 128)],
    "addmv": lambda m: [m(1024), m(1024, 1024), m(1024)],
    "mv": lambda m: [m(1024, 1024), m(1024)],
    "dot": lambda m: [m.flat, m.flat],
    "matmul": lambda m: [m(8, 128, 128), m(128, 128)],
    "linear": lambda m: [m(256, 256), m(256, 256), m(256)],
    "convolution": lambda m: [
        m(8, 32, 28, 28),
        m(32, 32, 3, 3),
        m(32),
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
    ],
    "convolution_backward": lambda m: [
        m(8, 32, 28, 28),
        m(8, 32, 28, 28),
        m(32, 32, 3, 3),
        [32],
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
        [True, True, True],
    ],
    "max_pool2d_with_indices": lambda m: [m(16, 32, 56, 56), [2, 2]],
    "max_pool2d_with_indices_backward": lambda m: [
        m(16, 32, 28, 28),
        x := m(16, 32, 56, 56),
        [2, 2],
        [2, 2],
        [0, 0],
        [1, 1],
        False,
        torch.nn.functional.max_pool2d(x, 2, return_indices=True)[1],
    ],
    "avg_pool1d": lambda m: [m(16, 64, 1024), [2]],
    "avg_pool2d": lambda m: [m(16, 32, 56, 56), [2, 2]],
    "avg_pool2d_backward": lambda m: [
        m(16, 32, 28, 28),
        m(16, 32, 56, 56),
        [2, 2],
        [2, 2],
        [0, 0],
        False,
        True,
        None,
    ],
    "avg_pool3d": lambda m: [m(4, 16, 16, 32, 32), [2, 2, 2]],
    "max_pool3d_with_indices": lambda m: [m(4, 16, 16, 32, 32), [2, 2, 2]],
    "_adaptive_avg_pool2d": lambda m: [m(16, 64, 28, 28), [7, 7]],
    "_adaptive_avg_pool2d_backward": lambda m: [m(16, 64, 7, 7), m(16, 64, 28, 28)],
    "_adaptive_avg_pool3d": lambda m: [m(4, 16, 16, 32, 32), [4, 4, 4]],
    "adaptive_avg_pool1d": lambda m: [m(16, 64, 1024), [16]],
    "adaptive_max_pool2d": lambda m: [m(16, 64, 28, 28), [7, 7]],
    "upsample_nearest2d": lambda m: [m(8, 32, 28, 28), [56, 56]],
    "upsample_nearest2d_backward": lambda m: [m(8, 32, 56, 56), [56, 56], [8, 32, 28, 28]],
    "upsample_bilinear2d": lambda m: [m(8, 32, 28, 28), [56, 56], False],
    "upsample_bilinear2d_backward": lambda m: [m(8, 32, 56, 56), [56, 56], [8, 32, 28, 28], False],
    "grid_sampler_2d": lambda m: [m(8, 16, 56, 56), m.unit(8, 56, 56, 2), 0, 0, False],
    "pixel_shuffle": lambda m: [m(8, 64, 28, 28), 2],
    "prod.dim_int": lambda m: [m.unit() if m.dtype.is_floating_point else m(), 1],
    "prod": lambda m: [m.unit() if m.dtype.is_floating_point else m()],
    "cumprod": lambda m: [m.unit() if m.dtype.is_floating_point else m(), 1],
    "sum.dim_IntList": lambda m: [m(), [1]],
    "mean.dim": lambda m: [m(), [1]],
    "any.dims": lambda m: [m(), [1]],
    "all.dims": lambda m: [m(), [1]],
    "logsumexp": lambda m: [m(), [1]],
    "argmax": lambda m: [m(), 1],
    "argmin": lambda m: [m(), 1],
    "aminmax": lambda m: ([m()], {"dim": 1}),
    "linalg_vector_norm": lambda m: [m(), 2, [1]],
    "norm.Scalar": lambda m: [m(), 2],
    "norm.ScalarOpt_dim": lambda m: [m(), 2, [1]],
    "norm.ScalarOpt_dim_dtype": lambda m: ([m(), 2, [1]], {"dtype": m.dtype}),
    "_softmax_backward_data": lambda m: [m(), torch.softmax(m(), 1), 1, m.dtype],
    "_log_softmax_backward_data": lambda m: [m(), torch.log_softmax(m(), 1), 1, m.dtype],
    "topk": lambda m: [m(), 5],
    "kthvalue": lambda m: [m(256, 1024), 5],
    "sort": lambda m: [m(256, 1024)],
    "sort.stable": lambda m: ([m(256, 1024)], {"stable": True}),
    "median.dim": lambda m: [m(256, 1024), 1],
    "nll_loss_forward": lambda m: [m(8192, 100), m.index(100, 8192), None, 1, -100],
    "nll_loss_backward": lambda m: [
        m(1)[0],
        m(8192, 100),
        m.index(100, 8192),
        None,
        1,
        -100,
        torch.tensor(8192, dtype=m.dtype),
    ],
    "nll_loss2d_forward": lambda m: [m(8, 20, 64, 64), m.index(20, 8, 64, 64), None, 1, -100],
    "nll_loss2d_backward": lambda m: [
        m(1)[0],
        m(8, 20, 64, 64),
        m.index(20, 8, 64, 64),
        None,
        1,
        -100,
        torch.tensor(32768, dtype=m.dtype),
    ],
    "mse_loss_backward": lambda m: [m(1)[0], m(), m(), 1],
    "smooth_l1_loss_backward": lambda m: [m(1)[0], m(), m(), 1, 1.0],
    "huber_loss_backward": lambda m: [m(1)[0], m(), m(), 1, 1.0],
    "binary_cross_entropy": lambda m: [m.unit(), m.unit()],
    "binary_cross_entropy_backward": lambda m: [m(1)[0], m.unit(), m.unit()],
    "binary_cross_entropy_with_logits": lambda m: [m(), m.unit()],
    "native_dropout_backward": lambda m: [m(), m.mask(), 2.0],
    "native_layer_norm": lambda m: [m(), [COLUMNS], m(COLUMNS), m(COLUMNS), 1e-5],
    "native_layer_norm_backward": lambda m: [
        m(),
        x := m(),
        [COLUMNS],
        x.float().mean(1, True).to(m.dtype),
        x.float().std(1, keepdim=True).reciprocal().to(m.dtype),
        m(COLUMNS),
        m(COLUMNS),
        [True, True, True],
    ],
    "native_group_norm": lambda m: [m(16, 64, 28, 28), m(64), m(64), 16, 64, 784, 8, 1e-5],
    "native_group_norm_backward": lambda m: [
        m(16, 64, 28, 28),
        m(16, 64, 28, 28),
        m(16, 8),
        m.unit(16, 8),
        m(64),
        16,
        64,
        784,
        8,
        [True, True, True],
    ],
    "_fused_rms_norm": lambda m: [m(), [COLUMNS], m(COLUMNS), 1e-5],
    "_fused_rms_norm_backward": lambda m: [m(), m(), [COLUMNS], m.unit(ROWS, 1), m(COLUMNS), [True, True]],
    "_native_batch_norm_legit_functional": lambda m: [*norm_sizes(m), *saved_statistics(m), True, 0.1, 1e-5],
    "_native_batch_norm_legit.no_stats": lambda m: [*norm_sizes(m), True, 0.1, 1e-5],
    "_native_batch_norm_legit_no_training": lambda m: [*norm_sizes(m), *saved_statistics(m), 0.1, 1e-5],
    "native_batch_norm_backward": lambda m: [
        m(32, 64, 28, 28),
        m(32, 64, 28, 28),
        m(64),
        *saved_statistics(m),
        *saved_statistics(m),
        True,
        1e-5,
        [True, True, True],
    ],
    "scaled_dot_product_attention": heads,
    "_scaled_dot_product_attention_math": heads,
    "_scaled_dot_product_flash_attention_for_cpu": heads,
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda m: [
        m(2, 8, 256, 64),
        *(h := heads(m)),
        *torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*h),
        0.0,
        False,
    ],
    "flip": lambda m: [m(), [1]],
    "roll": lambda m: [m(), [3], [1]],
    "repeat": lambda m: [m(256, 1024), [2, 2]],
    "constant_pad_nd": lambda m: [m(), [2, 2, 2, 2]],
    "pad": lambda m: [m(), [2, 2, 2, 2]],
    "reflection_pad1d": lambda m: [m(), [2, 2]],
    "reflection_pad2d": lambda m: [m(16, 64, 32, 32), [2, 2, 2, 2]],
    "replication_pad2d": lambda m: [m(16, 64, 32, 32), [2, 2, 2, 2]],
    "slice_scatter": lambda m: [m(), m(512, COLUMNS), 0, 0, 512],
    "select_scatter": lambda m: [m(), m(COLUMNS), 0, 3],
    "diagonal_scatter": lambda m: [m(), m(ROWS)],
    "as_strided_scatter": lambda m: [m(), m(512, 512), [512, 512], [1024, 1]],
    "slice_backward": lambda m: [m(512, COLUMNS), [ROWS, COLUMNS], 0, 0, 512, 1],
    "select_backward": lambda m: [m(COLUMNS), [ROWS, COLUMNS], 0, 3],
    "cat": lambda m: [m.many(8)],
    "stack": lambda m: [m.many(8)],
    "gather": lambda m: [m(), 1, m.index(COLUMNS, ROWS, COLUMNS)],
    "scatter.src": lambda m: [m(), 1, torch.argsort(m.index(1 << 30, ROWS, COLUMNS), 1), m()],
    "scatter.value": lambda m: [m(), 1, m.index(COLUMNS, ROWS, COLUMNS), m.number],
    "scatter_add": lambda m: [m(), 1, m.index(COLUMNS, ROWS, COLUMNS), m()],
    "scatter_reduce.two": lambda m: [m(), 1, m.index(COLUMNS, ROWS, COLUMNS), m(), "amax"],
    "index.Tensor": lambda m: [m(), [m.index(ROWS, 1024)]],
    "_unsafe_index.Tensor": lambda m: [m(), [m.index(ROWS, 1024)]],
    "index_put": lambda m: [m(), [torch.randperm(ROWS, generator=m.generator)], m()],
    "_unsafe_index_put": lambda m: [m(), [torch.randperm(ROWS, generator=m.generator)], m()],
    "index_select": lambda m: [m(), 0, m.index(ROWS, 1024)],
    "index_add": lambda m: [m(), 0, m.index(ROWS, 1024), m()],
    "index_copy": lambda m: [m(), 0, torch.randperm(ROWS, generator=m.generator), m()],
    "index_fill.int_Scalar": lambda m: [m(), 0, m.index(ROWS, 512), m.number],
    "take": lambda m: [m(), m.index(ROWS * COLUMNS, 512, 1024)],
    "embedding": lambda m: [m(4096, 256), m.index(4096, 4096)],
    "embedding_dense_backward": lambda m: [m(4096, 256), m.index(4096, 4096), 4096, -1, False],
    "searchsorted.Tensor": lambda m: [m.flat[:4096].sort()[0], m.flat],
    "bucketize.Tensor": lambda m: [m.flat, m.flat[:4096].sort()[0]],
    "_to_copy": lambda m: ([m()], {"dtype": torch.float64 if m.dtype == torch.float32 else torch.float32}),
    "fill.Tensor": lambda m: [m(), torch.tensor(m.number, dtype=m.dtype)],
    "full_like": lambda m: [m(), m.number],
    "zeros": lambda m: ([[ROWS, COLUMNS]], {"dtype": m.dtype, "device": None}),
    "ones": lambda m: ([[ROWS, COLUMNS]], {"dtype": m.dtype, "device": None}),
    "full": lambda m: ([[ROWS, COLUMNS], m.number], {"dtype": m.dtype, "device": None}),
    "new_zeros": lambda m: [m(1), [ROWS, COLUMNS]],
    "new_full": lambda m: [m(1), [ROWS, COLUMNS], m.number],
    "eye": lambda m: ([ROWS], {"dtype": m.dtype, "device": None}),
    "arange": lambda m: ([ROWS * COLUMNS], {"dtype": m.dtype, "device": None}),
    "arange.start": lambda m: ([3, ROWS * COLUMNS], {"dtype": m.dtype, "device": None}),
    "arange.start_step": lambda m: ([0, 2 * ROWS * COLUMNS, 2], {"dtype": m.dtype, "device": None}),
    "linspace": lambda m: ([0, 100, ROWS * COLUMNS], {"dtype": m.dtype, "device": None}),
    "complex": lambda m: [m(), m()],
    "_foreach_lerp.Scalar": lambda m: [m.many(), m.many(), 0.3],
    "_foreach_add.Tensor": lambda m: [m.many(), torch.tensor(m.number, dtype=m.dtype)],
    "_foreach_copy": lambda m: [m.many(), m.many()],
    "_fused_adam": lambda m: adam(m, 1e-3),
    "_fused_adam.tensor_lr": lambda m: adam(m, torch.tensor(1e-3)),
    "_fused_adamw": lambda m: adam(m, 1e-3),
    "_fused_adamw.tensor_lr": lambda m: adam(m, torch.tensor(1e-3)),
    "_fused_sgd": lambda m: sgd(m, 1e-3),
    "_fused_sgd.tensor_lr": lambda m: sgd(m, torch.tensor(1e-3)),
    "_fused_adagrad": lambda m: (
        [m.many(), m.many(), [x.abs() for x in m.many()], [torch.ones(()) for _ in range(20)]],
        {"lr": 1e-2, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-10, "maximize": False},
    ),
    "lazyt:dropout": lambda m: [m(), 0.5, True],
    "lazyt:uniform": lambda m: [m(), 0.0, 1.0],
    "lazyt:normal": lambda m: [m(), 0.0, 1.0],
    "lazyt:bernoulli": lambda m: [m(), 0.3],
    "lazyt:randint": lambda m: [m(), 0, 100],
}
# Dtypes of rows that the others do not have.
ALSO_OF = {"_int_mm": (torch.int8, torch.uint8)}
# How a program writes what is no operator of its own, or no operator without an out= or in place.
WRITTEN: dict[str, Callable[..., Any]] = {
    "lazyt:dropout": torch.ops.aten.native_dropout.default,
    "lazyt:uniform": lambda x, a, b: x.uniform_(a, b),
    "lazyt:normal": lambda x, a, b: x.normal_(a, b),
    "lazyt:bernoulli": lambda x, p: x.bernoulli_(p),
    "lazyt:randint": lambda x, a, b: x.random_(a, b),
}


def words(schema: str) -> Iterator[tuple[str, str, bool]]:
    """(type, name, whether it has a default) of each argument."""
    inside = schema[1 : schema.rindex(") ->")]
    for part in re.split(r", (?![^\[]*\])", inside):
        if part.strip() in ("", "*"):
            continue
        kind, _, name = part.strip().rpartition(" ")
        yield kind, name.split("=")[0], "=" in part


def by_schema(schema: str, m: Make) -> tuple[list[Any], dict[str, Any]]:
    """What a call of ordinary operands gives: tensors of a million elements, axis 1, lists of 20."""
    positional: list[Any] = []
    for kind, name, has_default in words(schema):
        if has_default:
            break
        if kind == "Tensor":
            positional.append(m())
        elif kind == "Tensor[]":
            positional.append(m.many())
        elif kind == "Scalar":
            positional.append(m.number)
        elif kind == "Scalar[]":
            positional.append([m.number] * 20)
        elif kind == "int" and name in ("dim", "axis"):
            positional.append(1)
        elif kind == "bool":
            positional.append(False)
        elif kind == "float":
            positional.append(0.5)
        else:
            raise LookupError(f"no operand for {kind} {name}")
    return positional, {}


def moved(value: Any, device: str) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)):
        return [moved(v, device) for v in value]
    return value


def bytes_of(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return sum(bytes_of(v) for v in value)
    return 0


class Row:
    """A step on both sides."""

    def __init__(self, name: str, schema: str, dtype: torch.dtype):
        self.calls: list[tuple[list[Any], dict[str, Any]]] = []
        for seed in range(CALLS):
            m = Make(dtype, seed)
            made = BY_HAND[name](m) if name in BY_HAND else by_schema(schema, m)
            self.calls.append(made if isinstance(made, tuple) else (made, {}))
        if name in WRITTEN:
            self.call = WRITTEN[name]
        else:
            packet, _, overload = name.partition(".")
            self.call = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def steps(self, device: str, end: Callable[[], None]) -> Callable[[int], float]:
        placed = [
            (moved(p, device), {k: device if k == "device" else moved(v, device) for k, v in words.items()})
            for p, words in self.calls
        ]

        def run(count: int) -> None:
            for _ in range(count):
                results = [self.call(*p, **words) for p, words in placed]
                end()
                del results

        def timed(count: int) -> float:
            return common.timed(lambda: (run(count), lazyt.wait_device_ops()))

        return timed

    def copy(self, count: int) -> float:
        """Of steps in which lazyt copies as many bytes as the row's calls read and write."""
        if not hasattr(self, "_copy"):
            moved_bytes = [bytes_of(p) + bytes_of(self.call(*p, **words)) for p, words in self.calls]
            other = object.__new__(Row)
            other.calls = [([torch.zeros(max(n // 2, 1), dtype=torch.uint8)], {}) for n in moved_bytes]
            other.call = torch.ops.aten.clone.default
            self._copy = other.steps("lazyt", lazyt.mark_step)
        return self._copy(count)

    def eager(self, count: int) -> float:
        if not hasattr(self, "_eager"):
            self._eager = self.steps("cpu", lambda: None)
        return self._eager(count)

    def lazy(self, count: int) -> float:
        if not hasattr(self, "_lazy"):
            self._lazy = self.steps("lazyt", lazyt.mark_step)
        return self._lazy(count)

    def ratio(self, other: Callable[[int], float], rounds: int, seconds: float) -> tuple[float, float, float]:
        """Seconds of the other, of lazyt, and the median of their ratios."""
        once = min(other(1), other(1))
        count = max(1, min(1000, int(seconds / max(once, 1e-6))))
        results = common.interleaved(
            {"other": lambda: other(count) / count, "lazyt": lambda: self.lazy(count) / count}, rounds
        )
        ratios = [e / z for e, z in zip(results["other"], results["lazyt"], strict=True)]
        return (
            statistics.median(results["other"]),
            statistics.median(results["lazyt"]),
            statistics.median(ratios),
        )


unproven: dict[str, float] = {}  # rows that are no pass over memory: of a copy's speed


def measure(name: str, schema: str, dtype: torch.dtype) -> dict[str, Any] | str:
    """The numbers of a row, or why there is none."""
    try:
        row = Row(name, schema, dtype)
        row.eager(1)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
        return f"eager: {str(error).splitlines()[0][:80]}"
    lazyt.metrics.reset()
    row.lazy(2)
    hosts = lazyt.metrics.fallbacks()
    if hosts:
        return "host: " + ", ".join(hosts)
    lazyt.metrics.reset()
    row.lazy(1)
    eager, lazy, ratio = row.ratio(row.eager, ARGS.rounds, SECONDS)
    if ratio < ARGS.slowest:
        eager, lazy, ratio = row.ratio(row.eager, 3 * ARGS.rounds, 4 * SECONDS)
    reason = SLOWER.get(f"{name} {str(dtype).removeprefix('torch.')}") or SLOWER.get(name)
    if ratio < ARGS.slowest and reason == ONE_PASS:
        of_copy = row.ratio(row.copy, 2 * ARGS.rounds, 2 * SECONDS)[2]
        reason = f"{ONE_PASS}, {of_copy:.2f} x the speed of a copy" if of_copy >= ARGS.slowest else None
        if not reason:
            unproven[f"{name} {dtype}"] = of_copy
    return {
        "reason": reason,
        "eager_us": eager * 1e6,
        "lazyt_us": lazy * 1e6,
        "ratio": ratio,
        "programs": lazyt.metrics.counter_value("UncachedCompile"),
    }


def main() -> int:
    torch.set_num_threads(ARGS.threads)
    torch.manual_seed(0)
    print(common.header(backend=lazyt.backend()["name"]))
    print(f"{'operator':<48}{'dtype':>10}{'eager us':>11}{'lazyt us':>11}{'ratio':>8}")
    dtypes = [getattr(torch, name) for name in ARGS.dtypes.split(",")]
    rows: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    begin, slow, untimed = time.perf_counter(), 0, []
    with OPSET.open("rb") as file:
        opset = tomllib.load(file)["op"]
    for op in opset:
        name = op["name"].removeprefix("aten::").replace("::", ":") + (
            "." + op["overload"] if op.get("overload") else ""
        )
        if name in UNTIMED or (ARGS.only and not any(part in name for part in ARGS.only.split(";"))):
            continue
        timed = False
        for dtype in dict.fromkeys([*dtypes, *ALSO_OF.get(name, ())]):
            kind = str(dtype).removeprefix("torch.")
            try:
                result = measure(name, op["schema"], dtype)
            except LookupError as error:
                untimed.append(f"{name}: {error}")
                timed = True
                break
            if isinstance(result, str):
                refused[f"{name} {kind}"] = result
                continue
            timed = True
            rows.append({"operator": name, "dtype": kind, **result})
            is_slow = result["ratio"] < ARGS.slowest
            reason, of_copy = result["reason"], unproven.get(f"{name} {dtype}")
            slow += is_slow and not reason
            if of_copy:
                reason = f"no pass over memory: {of_copy:.2f} x the speed of a copy"
            if is_slow or not ARGS.slow_only:
                mark = f"  slower: {reason or 'no reason is known'}" if is_slow else ""
                print(
                    f"{name:<48}{kind:>10}{result['eager_us']:>11.1f}{result['lazyt_us']:>11.1f}{result['ratio']:>8.2f}{mark}",
                    flush=True,
                )
        if not timed:
            untimed.append(
                f"{name}: " + "; ".join(sorted({v for k, v in refused.items() if k.split(" ")[0] == name}))
            )
    for line in untimed:
        print("untimed", line)
    ratios = sorted(row["ratio"] for row in rows)
    if ratios:
        below = sum(r < ARGS.slowest for r in ratios)
        print(
            f"{len(rows)} rows in {time.perf_counter() - begin:.0f} s: median {statistics.median(ratios):.2f}, {below} below {ARGS.slowest}, {slow} of them without a reason"
        )
    common.write_json(
        ARGS.json, {"backend": lazyt.backend()["name"], "rows": rows, "refused": refused, "untimed": untimed}
    )
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
