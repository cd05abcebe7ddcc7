"""What needs a process of its own: loading, backends that fail, policies, fork, exit."""

import os
from pathlib import Path

import lazyt
import pytest


def test_autoload_only_names_the_device(run_python):
    out = run_python("""
        import sys, torch
        torch.manual_seed(7)
        assert torch.device("lazyt").type == "lazyt"
        assert "lazyt" not in sys.modules
        x = torch.ones(2, device="lazyt") + 1
        assert "lazyt" in sys.modules
        assert torch.lazyt.initial_seed() == 7
        print(x.tolist())
    """)
    assert "[2.0, 2.0]" in out


def test_programs_for_the_cpu_go_on_where_the_device_is_named(run_python):
    """They ask for an accelerator, find one, and take it as far as they would take another."""
    out = run_python("""
        import torch, warnings
        warnings.simplefilter("ignore")
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        for workers in (0, 1):
            batches = torch.utils.data.DataLoader(data, 4, pin_memory=True, num_workers=workers)
            assert [b.tolist() for (b,) in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 2)
        model, x = torch.nn.DataParallel(net), torch.ones(3, 4)
        expected = x @ net.weight.detach().cpu().T + net.bias.detach().cpu()
        y = model(x)
        y.sum().backward()
        torch.testing.assert_close(y.detach().cpu(), expected)
        assert model.module.weight.grad.cpu().eq(3).all()
        print("done")
    """)
    assert "done" in out


def test_autoload_switched_off(run_python):
    out = run_python(
        "import torch, lazyt; print((torch.ones(2, device='lazyt') + 1).tolist())",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert "[2.0, 2.0]" in out


# torch.cuda as on a machine with a GPU, before torch looks for devices that load themselves.
TORCH_WITH_A_GPU = """
    import importlib.metadata, sys
    find = importlib.metadata.entry_points
    def found(*a, **k):
        import torch
        torch.backends.cuda.is_built = lambda: True
        torch.cuda.device_count = lambda: 1
        return find(*a, **k)
    importlib.metadata.entry_points = found
"""


def test_nothing_is_named_at_import_where_torch_has_a_gpu(run_python):
    """PyTorch has one accelerator in a process: another's name would end the training of CUDA's tensors."""
    out = run_python(
        TORCH_WITH_A_GPU
        + """
    import torch
    assert torch.cuda.device_count() == 1
    assert torch._C._get_privateuse1_backend_name() == "privateuseone"
    torch.manual_seed(7)
    import lazyt
    assert torch.lazyt.initial_seed() == 7
    print((torch.ones(2, device="lazyt") + 1).tolist())
    """,
        LAZYT_BACKEND="",
    )
    assert "[2.0, 2.0]" in out


def test_a_backend_asked_for_is_named_at_import_also_beside_a_gpu(run_python):
    out = run_python(
        TORCH_WITH_A_GPU + "\n    import torch\n    print(torch.device('lazyt'))", LAZYT_BACKEND="ts"
    )
    assert "lazyt" in out


def test_lazyt_imported_first(run_python):
    assert "2.0" in run_python("import lazyt, torch; print(torch.ones((), device='lazyt').item() + 1)")


def test_a_first_step_imports_nothing(run_python):
    """PyTorch's meta kernels in Python import SymPy: half a second and 20 MB."""
    out = run_python("""
        import sys, torch
        from torch.nn import functional as F
        conv, linear = torch.nn.Conv2d(3, 4, 3).to("lazyt"), torch.nn.Linear(8, 8).to("lazyt")
        x, q = torch.ones(2, 3, 6, 6, device="lazyt"), torch.ones(1, 2, 4, 8, device="lazyt")
        before = set(sys.modules)
        y = F.scaled_dot_product_attention(q, q.transpose(1, 2).contiguous().transpose(1, 2), q, is_causal=True)
        (conv(x).relu().mean() + F.gelu(linear(y)).softmax(-1).sum()).backward()
        conv.weight.grad.cpu()
        print("imported", sorted(m for m in set(sys.modules) - before if m.startswith(("sympy", "torch._refs"))))
    """)
    assert "imported []" in out


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="tells what memory a process has")
def test_what_eager_is_asked_with_takes_no_memory(run_python):
    """Shapes are asked of eager's kernels, on operands of the same sizes; here 60 MiB of these and of results in all."""
    out = run_python("""
    import torch, lazyt
    from torch.nn import functional as F

    def resident():
        return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) >> 10

    def ask(size):
        x = torch.zeros(16, 64, size, size, device="lazyt")
        return [F.max_pool2d(x, 3, padding=1, stride=1), torch.relu(x), x + x, torch.softmax(x, 1), F.avg_pool2d(x, 2), x.amax(2)]

    kept, blocks = ask(4), [torch.zeros(3 << 18) for _ in range(8)]
    del blocks  # the heap of a process that has had large tensors of its own takes some more
    before = resident()
    more = ask(50)
    print(resident() - before)
    """)
    assert int(out) < 8


def test_the_package_loads_without_torch(run_python):
    out = run_python("""
        import sys
        sys.modules["torch"] = None
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *a: None if name == "torch" else find(name, *a)
        import lazyt
        try:
            lazyt.mark_step()
        except ImportError as e:
            print(e)
    """)
    assert "needs PyTorch" in out


def test_an_unknown_backend_says_what_was_tried_and_eager_goes_on(run_python):
    out = run_python(
        """
        import torch, lazyt
        x = torch.ones(2, device="lazyt") + 1
        try:
            x.cpu()
        except RuntimeError as e:
            print("ERROR", e)
        print(torch.ones(2) + 1)
        lazyt.use_backend("null")
        print(lazyt.backend()["name"])
        """,
        LAZYT_BACKEND="no_such_backend",
    )
    assert "ERROR" in out and "no_such_backend" in out and "null" in out
    assert "tensor([2., 2.])" in out


def test_a_preference_list_takes_the_first_that_works(run_python):
    out = run_python("import lazyt; print(lazyt.backend()['name'])", LAZYT_BACKEND="no_such_backend,null")
    assert out.strip().endswith("null")


def test_a_value_of_the_environment_that_is_wrong_is_named(run_python):
    out = run_python("import torch; torch.ones(2, device='lazyt').cpu()", fails=True, LAZYT_FALLBACK="maybe")
    assert "LAZYT_FALLBACK" in out and "allow|warn|deny" in out


def test_fallback_is_allowed_counted_and_denied(run_python):
    out = run_python("""
        import torch, lazyt
        m = torch.arange(4.0, device="lazyt")
        assert torch.nonzero(m > 1).flatten().tolist() == [2, 3]
        lazyt.wait_device_ops()
        assert lazyt.metrics.counter_value("aten::nonzero") == 1, lazyt.metrics.counters()
        lazyt.set_fallback("deny")
        try:
            torch.nonzero(m > 1)
            raise SystemExit("not denied")
        except RuntimeError as e:
            print("DENIED", e)
        assert m.sum().item() == 6  # reading a value is no fallback
    """)
    assert "DENIED" in out and "aten::nonzero" in out and "LAZYT_FALLBACK=deny" in out


def test_fallback_can_warn_once(run_python):
    out = run_python(
        """
        import torch, lazyt
        m = torch.arange(4.0, device="lazyt")
        torch.nonzero(m), torch.nonzero(m)
        """,
        LAZYT_FALLBACK="warn",
    )
    assert out.count("aten::nonzero runs on the host") == 1


REFUSE = {"LAZYT_BACKEND": "null", "LAZYT_NULL_REFUSE": "aten::relu,aten::add"}


def test_operators_that_the_backend_refuses_run_on_the_host(run_python):
    out = run_python(
        """
        import torch, lazyt
        x = torch.tensor([-1.0, 2.0], device="lazyt")
        print(torch.relu(x + 1).tolist())
        lazyt.wait_device_ops()
        print(sorted(lazyt.metrics.fallbacks()))
        """,
        **REFUSE,
    )
    assert "[0.0, 3.0]" in out and "'aten::add'" in out and "'aten::relu'" in out


def test_a_refused_operator_is_denied_at_the_users_line(run_python):
    out = run_python(
        """
        import torch, lazyt
        x = torch.tensor([-1.0, 2.0], device="lazyt")
        y = torch.relu(x)
        """,
        fails=True,
        LAZYT_FALLBACK="deny",
        **REFUSE,
    )
    assert "aten::relu" in out and "line 4" in out and "LAZYT_NULL_REFUSE" in out


def bad_plugin(name: str) -> str:
    folder = os.environ.get("LAZYT_BAD_PLUGINS", "")
    path = os.path.join(folder, f"lazyt_{name}.so")
    if not folder or not os.path.exists(path):
        pytest.skip("LAZYT_BAD_PLUGINS does not name the folder of the plugins with faults")
    return path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("compile_error", "the code generator has a bug"),
        ("compile_null", "compile"),
        ("execute_error", ""),
        ("event_error", ""),
    ],
)
def test_a_backend_that_fails_poisons_only_its_results(run_python, name, message):
    out = run_python(
        """
        import torch, lazyt
        kept = torch.ones(2, device="lazyt")
        kept_host = torch.ones(2).to("lazyt")
        y = kept_host + 1
        lazyt.mark_step()
        lazyt.wait_device_ops()
        for _ in range(2):
            try:
                y.cpu()
                raise SystemExit("no error")
            except RuntimeError as e:
                print("ERROR", e)
        print(kept_host.tolist(), torch.ones(2) + 1)
        lazyt.use_backend("null")
        (kept_host + 1).cpu()
        print("GOES ON")
        """,
        LAZYT_BACKEND=bad_plugin(name),
        LAZYT_LAYERS="validate",  # named, not fatal: it breaks the contract by intent
    )
    assert out.count("ERROR") == 2 and message in out
    assert "[1.0, 1.0]" in out and "GOES ON" in out
    assert "<string>:5" in out or "compile" in out or "launch" in out


@pytest.mark.parametrize("name", ["no_entry", "init_error", "no_device", "missing_slot", "undefined_symbol"])
def test_a_backend_that_does_not_load_is_a_plain_error(run_python, name):
    out = run_python(
        """
        import torch, lazyt
        try:
            (torch.ones(2, device="lazyt") + 1).cpu()
        except RuntimeError as e:
            print("ERROR", e)
        print(torch.ones(2) + 1)
        """,
        LAZYT_BACKEND=bad_plugin(name),
    )
    assert "ERROR" in out and f"lazyt_{name}.so" in out and "tensor([2., 2.])" in out


def test_a_fork_after_use_is_an_error_that_says_what_to_do(run_python):
    out = run_python("""
        import os, sys, torch, lazyt
        x = (torch.ones(2, device="lazyt") + 1)
        x.cpu()
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                (x + 1).cpu()
            except RuntimeError as e:
                code = 0 if "spawn" in str(e) else 4
            assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        assert (x + 1).tolist() == [3, 3]
    """)
    assert "Error" not in out


def test_tensors_die_in_a_child_whose_parent_recorded_on_another_thread(run_python):
    out = run_python("""
        import os, signal, threading, torch, lazyt
        done = False
        def record():
            x = torch.ones(4, device="lazyt")
            while not done:
                torch._foreach_add([x] * 1000, 1.0)
                lazyt.mark_step()
        thread = threading.Thread(target=record)
        thread.start()
        for _ in range(150):
            kept = torch.empty(3, device="lazyt")
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)  # ends one that waits for a lock that nobody gives back
                del kept
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        done = True
        thread.join()
    """)
    assert "Error" not in out


def test_workers_of_a_data_loader(run_python):
    run_python("""
        import torch, lazyt
        model = torch.nn.Linear(3, 1).to("lazyt")
        data = torch.utils.data.TensorDataset(torch.ones(8, 3))
        loader = torch.utils.data.DataLoader(data, 2, num_workers=2)
        assert sum(model(x.to("lazyt")).numel() for (x,) in loader) == 8
        assert model.weight.isfinite().all()
    """)


def test_the_process_ends_cleanly_with_work_pending(run_python):
    out = run_python("""
        import torch, lazyt
        x = torch.ones(100, 100, device="lazyt")
        for _ in range(50):
            x = x @ x * 1e-2
        lazyt.mark_step()
        y = x + 1
    """)
    assert out.strip() == ""


def test_another_backend_in_the_middle(run_python):
    out = run_python("""
        import torch, lazyt
        x = torch.ones(2, device="lazyt") + 1
        first = lazyt.backend()["name"]
        lazyt.use_backend("null")
        print(x.tolist(), lazyt.backend()["name"])
        try:
            lazyt.use_backend("no_such_backend")
        except RuntimeError as e:
            print("ERROR", lazyt.backend()["name"])
    """)
    assert "[2.0, 2.0] null" in out and "ERROR null" in out


def test_every_public_name_is_typed():
    import pathlib

    stub = (pathlib.Path(lazyt.__file__).parent / "__init__.pyi").read_text()
    assert [n for n in lazyt.__all__ if n not in stub] == []
    binding = (pathlib.Path(lazyt.__file__).parent / "_C.pyi").read_text()
    names = [n for n in dir(lazyt._C) if not n.startswith("_")]
    assert [n for n in names if f"def {n}(" not in binding and f"class {n}:" not in binding] == []
