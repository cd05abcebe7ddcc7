"""PyTorch's device-type test classes, instantiated for the PrivateUse1 device: its own samples, inputs that must raise,
non-contiguous operands, dtype promotion, creation and views."""

import itertools

import lazyt  # noqa: F401
import pytest

pytest.importorskip("expecttest", reason="PyTorch's test classes need it")

import torch
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_dtype import all_types_and_complex_and
from torch.testing._internal.common_methods_invocations import binary_ufuncs, op_db
from torch.testing._internal.common_utils import TestCase

ALL = all_types_and_complex_and(torch.bool, torch.float16, torch.bfloat16)
RAISING = [op for op in op_db if op.error_inputs_func and "sparse" not in op.name and op.name not in ("__rpow__", "__rsub__")]  # of numbers
DENSE = [op for op in op_db if "sparse" not in op.name and not op.name.startswith("empty")]


class TestOperators(TestCase):
    @ops(RAISING[::7], allowed_dtypes=(torch.float32,))
    def test_inputs_that_must_raise(self, device, dtype, op):
        for case in op.error_inputs(device):
            sample = case.sample_input
            with self.assertRaisesRegex(case.error_type, case.error_regex):
                result = op(sample.input, *sample.args, **sample.kwargs)
                if isinstance(result, torch.Tensor):
                    result.cpu()  # errors about values

    @ops(DENSE[::23], allowed_dtypes=(torch.float32, torch.int64))
    def test_operands_of_any_strides(self, device, dtype, op):
        for sample in itertools.islice(op.sample_inputs(device, dtype), 4):
            other = sample.noncontiguous()
            torch.manual_seed(0)
            expected = op(sample.input, *sample.args, **sample.kwargs)
            torch.manual_seed(0)
            self.assertEqual(op(other.input, *other.args, **other.kwargs), expected)

    @ops([op for op in binary_ufuncs if op.name in ("add", "mul", "div", "maximum", "eq", "bitwise_and", "pow", "floor_divide")], dtypes=[torch.float32])
    def test_types_are_promoted_as_in_eager(self, device, dtype, op):
        for a, b in itertools.product(ALL, ALL):
            for shape in ((2,), ()):
                if torch.result_type(torch.ones(2, dtype=a), torch.ones(shape, dtype=b)) == torch.complex32:
                    continue  # eager lacks it; it is a dtype of accelerators, so the backend is asked

                def result(where):
                    x = make_tensor((2,), dtype=a, device="cpu", low=1, high=3).to(where)
                    y = make_tensor(shape, dtype=b, device="cpu", low=1, high=3).to(where)
                    try:
                        return op(x, y).dtype
                    except RuntimeError as e:
                        return type(e)

                self.assertEqual(result(device), result("cpu"), msg=f"{a}, {b}")


class TestCreation(TestCase):
    @dtypes(*ALL)
    def test_creation(self, device, dtype):
        for make in (
            lambda d: torch.zeros(2, 3, dtype=dtype, device=d),
            lambda d: torch.ones(0, 3, dtype=dtype, device=d),
            lambda d: torch.full((2,), 1, dtype=dtype, device=d),
            lambda d: torch.eye(3, dtype=dtype, device=d),
            lambda d: torch.tensor([[1, 0], [0, 1]], dtype=dtype, device=d),
            lambda d: torch.ones(2, 3, 4, 4, dtype=dtype, device=d).to(memory_format=torch.channels_last),
            lambda d: torch.zeros(3, dtype=dtype, device=d).new_full((2, 2), 1),
            lambda d: torch.ones_like(torch.zeros(4, 3, dtype=dtype, device=d).t()),
            lambda d: torch.empty_strided((2, 3), (1, 2), dtype=dtype, device=d).fill_(1),
        ):
            a, b = make(device), make("cpu")
            self.assertEqual((a.device.type, a.dtype, a.stride()), ("lazyt", b.dtype, b.stride()))
            self.assertEqual(a.cpu(), b)


class TestViews(TestCase):
    @dtypes(*ALL)
    def test_views_share_memory_and_versions(self, device, dtype):
        for view in (
            lambda t: t[1], lambda t: t[:, ::2], lambda t: t.t(), lambda t: t.view(-1)[3:], lambda t: t.unsqueeze(0), lambda t: t.diagonal(),
            lambda t: t.expand(2, 4, 6)[0], lambda t: t.unfold(1, 3, 2)[:, 1], lambda t: t.as_strided((2, 2), (6, 1), 1), lambda t: t.chunk(3, 1)[1],
            lambda t: t.reshape(2, 12)[1], lambda t: t.movedim(0, 1).squeeze(), lambda t: t.narrow(0, 1, 2).detach(),
        ):  # fmt: skip
            seen = []
            for where in (device, "cpu"):
                base = torch.arange(24, device=where).reshape(4, 6).to(dtype)
                v = view(base)
                v.zero_()
                seen.append((base.cpu(), v.stride(), v.storage_offset(), base._version, v._version, v.data_ptr() - base.data_ptr()))
            self.assertEqual(*seen)


for _case in (TestOperators, TestCreation, TestViews):
    instantiate_device_type_tests(_case, globals(), only_for=("lazyt",))
