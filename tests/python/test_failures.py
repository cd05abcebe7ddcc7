"""What a user sees of a backend that fails, hangs or is slow: the fault plugin over ts."""

import os
from pathlib import Path

import lazyt
import pytest

TS = Path(lazyt.__file__).parent / "plugins" / "lazyt_ts.so"


@pytest.fixture
def on_fault(run_python):
    """Runs a program on ts wrapped by the fault plugin."""
    bad = os.environ.get("LAZYT_BAD_PLUGINS", "")
    library = Path(bad).parents[1] / "fault" / "lazyt_fault.so" if bad else Path("none")
    if not library.exists() or not TS.exists():
        pytest.skip("LAZYT_BAD_PLUGINS does not name the build tree, or there is no ts")

    def run(program: str, at: str, **env: str) -> str:
        fault = {"LAZYT_BACKEND": str(library), "LAZYT_FAULT_WRAPS": str(TS), "LAZYT_FAULT_AT": at}
        return run_python(program, **fault | env)

    return run


STEPS = """
    import torch, lazyt
    w = torch.arange(4.0).to("lazyt")
    results = []
    for i in range(3):
        y = torch.relu(w * (i + 1))
        results.append(y)
        lazyt.mark_step()
    for i, y in enumerate(results):
        try:
            print("VALUE", i, y.tolist() == [0.0, i + 1, 2 * (i + 1), 3 * (i + 1)])
        except RuntimeError as e:
            print("ERROR", i, str(e).replace(chr(10), "; "))
            try:
                y.tolist()
            except RuntimeError as again:
                print("AGAIN", str(again) == str(e))
"""


@pytest.mark.parametrize("function", ["executable.work", "executable.execute"])
@pytest.mark.parametrize("sync", ["0", "1"])
def test_an_error_poisons_its_step_only_and_names_step_operator_and_line(on_fault, function, sync):
    out = on_fault(STEPS, f"{function}:2:fail:DATA_LOSS", LAZYT_FAULT_SYNC=sync)
    assert "VALUE 0 True" in out and "VALUE 2 True" in out and "AGAIN True" in out
    error = next(line for line in out.splitlines() if line.startswith("ERROR 1"))
    for part in ("DATA_LOSS", f"injected: call 2 of {function}", "launch 2", "aten::relu", "<string>:", "LAZYT_EAGER=1"):
        assert part in error, error


# A loop as people write it: who catches the error goes on with the model, its momentum and its counters as they were.
TRAINING = """
    import torch, lazyt
    def train(device, skipped):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        data = torch.arange(48.0).sin().reshape(6, 8, 1).expand(6, 8, 4).contiguous()
        seen = torch.zeros((), device=device)
        caught = []
        for i, x in enumerate(data):
            if i in skipped: continue
            loss = model(x.to(device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            seen += 1
            optimizer.step()
            if READS:
                try:
                    loss.item()
                except torch.OutOfMemoryError as e:
                    caught.append(i)
        while True:  # the first look raises what nobody looked at before
            try:
                return [p.tolist() for p in [*model.parameters(), *model.buffers(), seen]], caught
            except torch.OutOfMemoryError:
                caught.append("end")
"""


@pytest.mark.parametrize("function, call", [("executable.execute", 3), ("buffer.alloc", 25)])
@pytest.mark.parametrize("sync", ["0", "1"])
def test_a_step_without_memory_leaves_the_model_as_it_was(on_fault, function, call, sync):
    at = ",".join(f"{function}:{c}:fail:RESOURCE_EXHAUSTED" for c in (call, call + 1))  # the host tries twice
    program = TRAINING.replace("READS", "True") + """
    values, caught = train("lazyt", ())
    print("CAUGHT", len(caught))
    expected, _ = train("lazyt", caught)
    print("SAME", values == expected)
"""
    out = on_fault(program, at, LAZYT_FAULT_SYNC=sync)
    assert "CAUGHT 1" in out and "SAME True" in out


def test_steps_that_nobody_looked_at_end_where_the_first_failed(on_fault):
    program = TRAINING.replace("READS", "False") + """
    values, caught = train("lazyt", ())
    expected, _ = train("lazyt", range(2, 6))
    print("CAUGHT", caught, "SAME", values == expected)
"""
    out = on_fault(program, "executable.execute:3:fail:RESOURCE_EXHAUSTED,executable.execute:4:fail:RESOURCE_EXHAUSTED")
    assert "CAUGHT ['end'] SAME True" in out


def test_what_an_error_about_values_interrupts_is_never_an_old_value(run_python):
    out = run_python(
        """
        import torch, lazyt
        x = torch.zeros(3).to("lazyt")
        lazyt.mark_step()
        x.add_(1)  # done in eager, as it stands before the error
        bad = torch.gather(x, 0, torch.tensor([5]).to("lazyt"))
        for t in (bad, x):
            try:
                print("VALUE", t.tolist())
            except (RuntimeError, IndexError) as e:
                print("ERROR", "out of bounds" in str(e))
        """,
        LAZYT_BACKEND="null",
        LAZYT_NULL_REFUSE="aten::gather,aten::add.Tensor,aten::add",
    )
    assert out.splitlines()[-2:] == ["ERROR True", "ERROR True"], out


def test_an_error_inside_a_host_island_names_its_operator_and_line(run_python):
    out = run_python(
        """
        import torch, lazyt
        x = torch.ones(3).to("lazyt")
        bad = torch.gather(x + 1, 0, torch.tensor([5]).to("lazyt"))  # line 4
        y = bad + 1
        lazyt.mark_step()
        try:
            y.tolist()
        except RuntimeError as e:
            print("ERROR", str(e).replace(chr(10), "; "))
        print("NEXT", torch.gather(x, 0, torch.tensor([2]).to("lazyt")).tolist())
        """,
        LAZYT_BACKEND="null",
        LAZYT_NULL_REFUSE="aten::gather",
    )
    error = next(line for line in out.splitlines() if line.startswith("ERROR"))
    assert "out of bounds" in error and "aten::gather, <string>:4" in error and "launch 1" in error, error
    assert "NEXT [1.0]" in out


def test_a_hang_ends_with_a_lost_device_and_another_backend_goes_on(on_fault):
    out = on_fault(
        """
        import torch, lazyt, time
        w = torch.arange(4.0).to("lazyt")
        start = time.monotonic()
        y = w + 1
        for attempt in range(2):
            try:
                y.tolist()
            except RuntimeError as e:
                print("ERROR", str(e).replace(chr(10), "; "))
        pending = torch.ones(2, device="lazyt") + 1
        try:
            lazyt.mark_step()
        except RuntimeError as e:
            print("LATER", "is lost" in str(e))
        lazyt.use_backend("ts")
        print("PENDING", pending.tolist())
        try:
            w.tolist()
        except RuntimeError as e:
            print("GONE", "is lost" in str(e))
        print("SOON", time.monotonic() - start < 20)
        """,
        "executable.execute:1:hang",
        LAZYT_DEADLINE="0.3",
    )
    errors = [line for line in out.splitlines() if line.startswith("ERROR")]
    assert len(errors) == 2
    words = "UNAVAILABLE|is lost|executable.execute|0.3 s|LAZYT_DEADLINE|use_backend|<string>:5"
    for part in words.split("|"):
        assert part in errors[0], errors[0]
    assert "LATER True" in out and "PENDING [2.0, 2.0]" in out and "GONE True" in out and "SOON True" in out


HANGS = ["buffer.from_host", "buffer.to_host", "executable.compile", "executable.work"]


@pytest.mark.parametrize("function", HANGS)
def test_the_process_ends_although_the_backend_hangs(on_fault, function):
    on_fault(
        """
        import torch, lazyt
        try:
            x = torch.ones(2000).to("lazyt")  # too large to be read without a call
            y = x + 1
            y.cpu()
        except RuntimeError:
            pass
        z = torch.ones(2, device="lazyt") * 2  # pending at exit
        """,
        f"{function}:1:hang",
        LAZYT_DEADLINE="0.3",
    )


def test_the_process_ends_with_hung_work_that_nobody_waits_for(on_fault):
    on_fault(
        """
        import torch, lazyt
        x = torch.ones(4).to("lazyt")
        y = x + 1
        lazyt.mark_step()
        """,
        "executable.work:1:hang",
        LAZYT_DEADLINE="0.3",
    )


def test_a_delay_only_costs_time(on_fault):
    out = on_fault(STEPS, "executable.work:2:delay:50,buffer.to_host:1:delay:20")
    assert out.count("True") == 3


def test_short_memory_is_tried_again(on_fault):
    out = on_fault(
        STEPS + "\n    print('RETRIES', lazyt.metrics.counter_value('MemoryRetries'))",
        "buffer.alloc:2:fail:RESOURCE_EXHAUSTED,buffer.from_host:1:fail:RESOURCE_EXHAUSTED",
    )
    assert out.count("VALUE") == out.count("True") == 3 and "RETRIES 2" in out


def test_a_wrong_deadline_is_named(run_python):
    out = run_python("import torch; torch.ones(2, device='lazyt').cpu()", fails=True, LAZYT_DEADLINE="soon")
    assert "LAZYT_DEADLINE" in out and "seconds" in out


BEGUN = """
    import torch, lazyt
    weights = [torch.ones(16, 16).to("lazyt") for _ in range(12)]
    x = torch.ones(1, 16).to("lazyt")
    for i in range(6):
        y = x
        for w in weights:
            y = torch.tanh(y @ w)
        try:
            y.sum().item()
            print("VALUE", i)
        except RuntimeError as e:
            print("ERROR", i, str(e).replace(chr(10), "; "))
    print("BEGUN", lazyt.metrics.counter_value("LaunchBegun") or 0)
    """


@pytest.fixture
def on_begun(on_fault):
    """Steps of twelve pieces, of which the first run while the others are recorded (LAZYT_PIECE_BYTES)."""
    null = TS.with_name("lazyt_null.so")
    if not null.exists() or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is no null plugin, or one CPU")

    def run(at: str) -> list[str]:
        env = {"LAZYT_FAULT_WRAPS": str(null), "LAZYT_FAULT_SYNC": "1", "LAZYT_PIECE_BYTES": "1024"}
        return on_fault(BEGUN, at, LAZYT_DEADLINE="2", **env).splitlines()

    return run


def test_what_fails_before_its_step_is_recorded_is_the_steps_error(on_begun):
    calls = range(25, 28)  # of the third step: what has begun, and the launch; of the fourth: what has begun
    said = on_begun(",".join(f"executable.execute:{call}:fail:DATA_LOSS" for call in calls))
    errors = [line for line in said if line.startswith("ERROR")]
    assert errors and errors[0].startswith("ERROR 2")
    for part in ("injected: call ", "of executable.execute", "launch 3", "of 12", "aten::mm"):
        assert part in errors[0], errors[0]
    assert {"VALUE 0", "VALUE 1", "VALUE 3"} <= set(said)


def test_what_fails_once_before_its_step_is_recorded_is_run_again(on_begun):
    said = on_begun("executable.execute:25:fail:INTERNAL")
    assert [line for line in said if line.startswith("VALUE")] == [f"VALUE {i}" for i in range(6)]
    assert int(said[-1].split()[1]) > 0


def test_a_backend_that_hangs_before_its_step_is_recorded_is_given_up(on_begun):
    # Steps of 10 ms: what is known to be short, who waits may run himself, and is not given up there.
    said = on_begun("executable.execute:1:delay:10,executable.execute:13:delay:10,executable.execute:25:hang")
    ends = [line.split()[0] for line in said if line.startswith(("VALUE", "ERROR"))]
    assert ends == ["VALUE"] * 2 + ["ERROR"] * 4
    assert "executable.execute did not come back within 2 s" in "".join(said)
