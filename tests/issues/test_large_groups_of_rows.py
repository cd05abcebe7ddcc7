"""_grouped_mm of f32 failed where it was large: PyTorch's meta kernel, which is asked then, knows bf16 alone."""

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_mixture_with_16_mib_of_weights(dtype):
    x = torch.randn(48, 256, dtype=dtype)
    experts = torch.randn(8, 4096, 256, dtype=dtype) / 16
    ends = torch.arange(6, 54, 6, dtype=torch.int32)

    def call(device):
        weights = experts.to(device).requires_grad_()
        out = torch._grouped_mm(x.to(device), weights.mT, ends.to(device))
        return [t.cpu() for t in (out, *torch.autograd.grad(out.square().mean(), weights))]

    torch.testing.assert_close(call("lazyt"), call("cpu"))


def test_what_eager_refuses_is_an_error():
    ends = torch.tensor([2, 4], dtype=torch.int32)
    for left, right in (((4, 8), (2, 4, 8)), ((4, 6), (2, 6, 8)), ((4, 8), (3, 8, 8))):
        errors = []
        for device in ("cpu", "lazyt"):
            with pytest.raises(RuntimeError) as error:
                torch._grouped_mm(
                    torch.ones(left, device=device), torch.ones(right, device=device), ends.to(device)
                ).cpu()
            errors.append(str(error.value).splitlines()[0])
        assert errors[0] == errors[1]
