"""PyTorch's settings of how programs are run reach the plugin as flags of what was recorded under them."""

import json

PROGRAM = """
    import torch
    a, b = torch.ones(4, 4).to("lazyt"), torch.ones(4, 4).to("lazyt")
    def product(): return (a @ b + 1).sum().item()
    def sums(): return (a + b).sum().item()
    tf32 = torch.backends.cuda.matmul
    """
DETERMINISTIC, TF32 = 8, 2


def compiled(run_python, program: str) -> list[tuple[str, int]]:
    """The operators and the flags of each program that the plugin compiled, in order."""
    lines = run_python(PROGRAM + program, LAZYT_BACKEND="null", LAZYT_LAYERS="trace:json").splitlines()
    calls = [json.loads(line) for line in lines if line.startswith("{")]
    return [call["args"][1]["flags"] for call in calls if call["call"] == "executable.compile"]


def test_programs_have_no_flags_unless_asked(run_python):
    assert compiled(run_python, "product(); sums()") == [0, 0]


def test_deterministic_algorithms_is_a_flag_of_what_is_recorded_while_it_holds(run_python):
    assert compiled(
        run_python,
        """
    product()
    torch.use_deterministic_algorithms(True)
    product()
    torch.use_deterministic_algorithms(False)
    product()
    """,
    ) == [0, DETERMINISTIC]


def test_a_setting_that_changes_within_a_step_cuts_it(run_python):
    assert compiled(
        run_python,
        """
    import lazyt
    for _ in range(3):
        x = a + b
        torch.use_deterministic_algorithms(True)
        y = x * a
        torch.use_deterministic_algorithms(False)
        z = (y - b).sum().item()
    assert lazyt.metrics.counter_value("FlushSetting") == 6
    assert lazyt.metrics.counter_value("UncachedCompile") == 3
    """,
    ) == [0, DETERMINISTIC, 0]


def test_the_precision_of_products_is_a_flag_of_programs_that_have_any(run_python):
    for setting, back in [
        ("tf32.allow_tf32 = True", "tf32.allow_tf32 = False"),
        ("torch.set_float32_matmul_precision('high')", "torch.set_float32_matmul_precision('highest')"),
        ("tf32.fp32_precision = 'tf32'", "tf32.fp32_precision = 'ieee'"),
    ]:
        steps = f"product(); sums(); {setting}; sums(); product(); {back}; product()"
        assert compiled(run_python, steps) == [0, 0, TF32], setting


def test_what_was_recorded_without_a_setting_is_not_used_with_it(run_python):
    """Replayed tapes: the plan of each setting is the one that runs under it."""
    output = run_python(
        PROGRAM
        + """
    for i in range(6):
        torch.use_deterministic_algorithms(i % 2 == 1)
        product()
    """,
        LAZYT_BACKEND="null",
        LAZYT_LAYERS="trace:json",
    )
    calls = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    flags = {c["out"][0]: c["args"][1]["flags"] for c in calls if c["call"] == "executable.compile"}
    ran = [flags[c["args"][0]] for c in calls if c["call"] == "executable.execute"]
    assert ran == [0, DETERMINISTIC] * 3
