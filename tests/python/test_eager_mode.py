"""LAZYT_EAGER=1: operator by operator, the same results, errors at the line of the operator."""


def test_an_error_of_a_value_comes_at_its_own_line(run_python):
    out = run_python(
        """
        import sys, traceback
        import torch
        x = torch.arange(6.0).to("lazyt")
        bad = torch.tensor([9]).to("lazyt")
        try:
            y = x[bad]  # the line
            z = y + 1
            z.cpu()
        except IndexError as e:
            print("line", traceback.extract_tb(sys.exc_info()[2])[0].lineno, "out of" in str(e))
        print((x + 1).sum().item())
        """,
        LAZYT_EAGER="1",
    )
    line, value = out.strip().splitlines()
    assert line == "line 7 True"
    assert value == "21.0"


def test_training_gives_what_it_gives_lazily(run_python):
    program = """
        import lazyt, torch
        from torch import nn
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 1)).to("lazyt")
        optimizer = torch.optim.Adam(model.parameters())
        x = torch.randn(4, 8).to("lazyt")
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        print(f"{loss.item():.6f}")
        flushes = lazyt.metrics.counters().get("FlushNodeBudget", 0)
        print(flushes > 100)
    """
    lazy, eager = run_python(program), run_python(program, LAZYT_EAGER="1")
    assert lazy.split() == [eager.split()[0], "False"]
    assert eager.split()[1] == "True"


def test_a_wrong_value_is_an_error_that_names_it(run_python):
    out = run_python(
        """
        import torch
        try:
            (torch.ones(2).to("lazyt") + 1).cpu()
        except RuntimeError as e:
            print(e)
        """,
        LAZYT_EAGER="perhaps",
    )
    assert "LAZYT_EAGER" in out and "perhaps" in out
