"""What one element of a list writes is another's operand: eager goes through the lists one by one, and so later ones
see it. Recorded as one operator, all would be read before the first is written."""

import pytest
import torch

CASES = {
    "one by the other": lambda a, b: torch._foreach_mul_([a, b], [b, a]),
    "copied in turn": lambda a, b: torch._foreach_copy_([a, b], [b, a]),
    "one twice": lambda a, b: torch._foreach_add_([a, a, b], 1.0),
    "one twice, by numbers": lambda a, b: torch._foreach_mul_([a, a], [3.0, 5.0]),
    "one twice, alone": lambda a, b: torch._foreach_neg_([a, b, a]),
    "views that overlap": lambda a, b: torch._foreach_add_([a[:3], a[1:]], [b[:3], b[1:]]),
    "sizes that do not fit, behind another": lambda a, b: torch._foreach_add_([a, b], [b, b[:3]]),
    "what eager refuses, behind another": lambda a, b: torch._foreach_add_([b, a[1:]], [a, a[:3]]),
    "a view of what the next one is": lambda a, b: torch._foreach_add_([a[2:], a], [b[:2], b]),
    "by a number that is written": lambda a, b: torch._foreach_mul_([a[:1], a[1:2], b], a[0]),
    "products": lambda a, b: torch._foreach_addcmul_([a, b], [b, a], [a, b], 2.0),
    "between": lambda a, b: torch._foreach_lerp_([a, b], [b, a], 0.5),
    "itself": lambda a, b: torch._foreach_mul_([a, b], [a, b]),
    "parts that lie side by side": lambda a, b: torch._foreach_mul_([a[:2], a[2:]], [b[2:], b[:2]]),
}


@pytest.mark.parametrize("case", CASES)
def test_later_elements_see_what_earlier_ones_wrote(case):
    def outcomes(device):
        seen = []
        for step in range(4):
            a, b = (torch.arange(4.0) + step + 2).to(device), (torch.arange(4.0) * 3 - step).to(device)
            before = a._version, b._version
            try:
                CASES[case](a, b)
                said = a._version - before[0], b._version - before[1]
            except RuntimeError as e:
                said = str(e).split("\n")[0]
            seen.append((said, a.tolist(), b.tolist()))
        return seen

    assert outcomes("lazyt") == outcomes("cpu")


@pytest.mark.parametrize(
    "case, recorded", [("itself", True), ("parts that lie side by side", True), ("one twice", False)]
)
def test_only_such_lists_are_taken_apart(case, recorded):
    import lazyt

    lazyt.metrics.reset()
    a, b = torch.ones(4, device="lazyt"), torch.ones(4, device="lazyt")
    CASES[case](a, b)
    assert any("_foreach_" in name for name in lazyt.metrics.counter_names()) == recorded


def test_a_parameter_that_an_optimizer_has_twice():
    def stepped(device):
        p, q = torch.ones(3, device=device), torch.full((3,), 2.0, device=device)
        g = torch.full((3,), 0.5, device=device)
        torch._fused_sgd_(
            [p, q, p],
            [g, g, g],
            [],
            weight_decay=0.1,
            momentum=0.0,
            lr=0.1,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=True,
        )
        return p.tolist(), q.tolist()

    assert stepped("lazyt") == stepped("cpu")
