"""Several devices in one process, each of a backend of its own: lazyt:0 and lazyt:1."""

import pytest

TWO = "ts,onednn"

HEAD = """
import lazyt, torch
A, B = "lazyt:0", "lazyt:1"
def raises(call, *words):
    try:
        call()
    except Exception as error:
        assert all(w in str(error) for w in words), f"{error} lacks one of {words}"
        return
    raise AssertionError("nothing was raised")
def close(a, b):
    torch.testing.assert_close(a.cpu(), b.cpu())
"""


@pytest.fixture
def run(run_python):
    def run(program: str, devices: str = TWO, **env: str) -> str:
        import textwrap

        return run_python(HEAD + textwrap.dedent(program), LAZYT_DEVICES=devices, **env)

    return run


def test_the_table_says_which_backend_each_device_is(run):
    out = run("""
        assert torch.lazyt.device_count() == 2 == torch.accelerator.device_count()
        table = lazyt.devices()
        print([d["lazyt"] for d in table], [d["name"] for d in table], [d["device_index"] for d in table])
        assert lazyt.backend(A)["name"] == "ts" and lazyt.backend(B)["name"] == "onednn" == lazyt.backend("lazyt:1")["name"]
        assert torch.lazyt.get_device_name(1) == table[1]["device"]
    """)
    assert "['lazyt:0', 'lazyt:1'] ['ts', 'onednn'] [0, 0]" in out


def test_each_device_computes_on_its_own_backend(run):
    run("""
        x = torch.randn(16, 16)
        a, b = (x.to(A) @ x.to(A)).relu(), (x.to(B) @ x.to(B)).relu()
        assert (a.device, b.device) == (torch.device(A), torch.device(B)), (a.device, b.device)
        close(a, (x @ x).relu()), close(b, (x @ x).relu())
        lazyt.wait_device_ops()                    # a value is there before its launch counts as done
        table = lazyt.devices()
        assert all(d["programs"] == 1 and d["busy"] > 0 and d["memory"]["bytes_in_use"] > 0 for d in table), table
    """)


def test_to_moves_values_between_devices_whatever_their_geometry_and_dtype(run):
    run("""
        x = torch.arange(24.0).reshape(2, 3, 4)
        on_a = x.to(A)
        for view in (lambda t: t, lambda t: t + 1, lambda t: t.transpose(0, 2), lambda t: t[:, 1:, ::2], lambda t: t[0, 0, 0],
                     lambda t: t.expand(5, 2, 3, 4), lambda t: t[:0], lambda t: torch.complex(t, t).conj()):
            moved = view(on_a).to(B)
            assert moved.device == torch.device(B) and moved.shape == view(x).shape
            assert moved.stride() == view(x).to("cpu", copy=True).stride(), (moved.stride(), view(x).stride())
            close(moved, view(x)), close(moved * 2, view(x) * 2), close(moved.to(A), view(x))
        close(on_a.to(B, torch.float16), x.half())
        close(on_a.to(B, torch.int64), x.long())
        target = torch.zeros(4, 2, 3, device=B)
        target[1:3].copy_(on_a[0, :2, :3])        # a part, broadcast
        close(target, torch.cat([torch.zeros(1, 2, 3), x[0, :2, :3].expand(2, 2, 3), torch.zeros(1, 2, 3)]))
        assert on_a.to(A) is on_a and torch.empty(3, device=A).to(B).shape == (3,)
        on_a.add_(1)                               # the copy keeps what it was given
        copy = on_a.to(B)
        on_a.mul_(0)
        close(copy, x + 1), close(on_a, x * 0)
        copy.mul_(2)
        close(on_a, x * 0), close(copy, 2 * x + 2)
    """)


def test_a_copy_does_not_wait_for_the_source(run):
    run("""
        x = torch.ones(256, 256, device=A)
        lazyt.wait_device_ops()
        before = dict(lazyt.metrics.counters())
        for _ in range(20):
            x = (x @ x).clamp(max=1).to(B).to(A)
        total = x.sum().item()
        now = lazyt.metrics.counters()
        assert total == 256 * 256
        ways = {n: now.get(n, 0) - before.get(n, 0) for n in ("DeviceCopyShared", "DeviceCopyThroughHost", "DeviceCopyWithinPlugin")}
        assert sum(ways.values()) == 40, ways
        assert ways["DeviceCopyShared"] > 0, ways  # both lend the CPU's memory
    """)


def test_operands_on_two_devices_give_eagers_error(run):
    run("""
        a, b = torch.ones(3, 3, device=A), torch.ones(3, 3, device=B)
        words = ("Expected all tensors to be on the same device, but found at least two devices, lazyt:0 and lazyt:1",)
        for _ in range(3):  # recorded, and replayed
            (a + a).sum().item()
            raises(lambda: a + b, *words, "for argument other in method aten::add")
            raises(lambda: a @ b, *words), raises(lambda: a.add_(b), *words), raises(lambda: torch.cat([a, b]), *words)
            raises(lambda: torch.where(a > 0, a, b), *words)
            raises(lambda: torch.add(a, a, out=b), *words)
            raises(lambda: torch.linalg.solve(a, b), *words)   # runs on the host
            raises(lambda: torch.nn.functional.linear(a, b), *words)
            raises(lambda: a + torch.ones((), device=B), *words)  # no number in a tensor's clothes
        raises(lambda: a.set_(b.untyped_storage(), 0, (3, 3)), "device")
        close(a + torch.ones(()), torch.full((3, 3), 2.0))
        close(b + torch.ones(()), torch.full((3, 3), 2.0))
    """)


def test_lists_on_several_devices_are_gone_through_as_in_eager(run):
    run("""
        tensors = [torch.full((2,), float(i), device=d) for i, d in enumerate([A, B, A])]
        torch._foreach_add_(tensors, 1.0)
        assert [t.tolist() for t in tensors] == [[1, 1], [2, 2], [3, 3]]
        parameters = [torch.nn.Parameter(t.clone()) for t in tensors]
        for p in parameters:
            p.grad = torch.ones_like(p)
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        assert abs(norm.item() - 6 ** 0.5) < 1e-6
        torch.optim.AdamW(parameters, lr=0.5).step()
        assert [p.device.index for p in parameters] == [0, 1, 0]
    """)


def test_a_model_lies_on_two_devices_and_trains_as_on_one(run):
    run("""
        def train(first, second):
            torch.manual_seed(0)
            front, back = torch.nn.Linear(8, 16).to(first), torch.nn.Linear(16, 4).to(second)
            optimizer = torch.optim.Adam([*front.parameters(), *back.parameters()], lr=0.01)
            x, y = torch.randn(32, 8), torch.randint(4, (32,))
            losses = []
            for _ in range(6):
                optimizer.zero_grad()
                hidden = torch.relu(front(x.to(first)))
                loss = torch.nn.functional.cross_entropy(back(hidden.to(second)), y.to(second))
                loss.backward()
                optimizer.step()
                losses.append(loss.detach().cpu())
            return torch.stack(losses), [p.grad.device for p in front.parameters()]
        eager, _ = train("cpu", "cpu")
        lazy, devices = train(A, B)
        close(lazy, eager)
        assert set(devices) == {torch.device(A)}
        before = lazyt.metrics.counter_value("UncachedCompile")
        train(A, B)
        assert lazyt.metrics.counter_value("UncachedCompile") == before  # the same programs again
    """)


def test_a_backward_on_threads_of_autograd_finds_the_devices(run):
    run("""
        torch.autograd.set_multithreading_enabled(True)
        x = torch.ones(4, device=A, requires_grad=True)
        ((x * 2).to(B) * 3).to(A).sum().backward()
        assert x.grad.tolist() == [6.0] * 4 and x.grad.device.index == 0
    """)


def test_the_current_device_is_the_threads(run):
    run("""
        import threading
        assert torch.lazyt.current_device() == 0 and torch.ones(1, device="lazyt").device.index == 0
        torch.lazyt.set_device(B)
        assert torch.ones(1, device="lazyt").device.index == 1 and torch.accelerator.current_device_index() == 1
        with torch.lazyt.device(0), torch.lazyt.device(-1):
            assert torch.tensor([1.0]).to("lazyt").device.index == 0
            assert torch.lazyt.current_stream().device == torch.device(A)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.lazyt.current_device()))
        thread.start(), thread.join()
        assert seen == [0] and torch.lazyt.current_device() == 1
        with torch.lazyt.device_of(torch.ones(1, device=A)):
            assert torch.empty_like(torch.ones(1, device=B)).device.index == 1
            assert torch.arange(3, device="lazyt").device.index == 0
        assert torch.arange(3, device="lazyt").device.index == 1
        with torch.accelerator.device_index(0):
            assert torch.lazyt.current_device() == 0
        for call in (lambda: torch.lazyt.set_device(2), lambda: torch.ones(1, device="lazyt:2"), lambda: torch.accelerator.set_device_index(2)):
            raises(call, "no device lazyt:2", "are 2, lazyt:0 to lazyt:1")
    """)


def test_random_numbers_are_a_stream_for_each_device(run):
    run("""
        torch.manual_seed(5)
        a, b = torch.rand(4, device=A), torch.rand(4, device=B)
        close(a, b)                                   # the same seed and offset, on any backend
        torch.rand(4, device=A)
        assert not torch.equal(torch.rand(4, device=A).cpu(), torch.rand(4, device=B).cpu())
        states = torch.lazyt.get_rng_state_all()
        assert len(states) == 2 == len(torch.lazyt.default_generators)
        first = torch.rand(4, device=B).cpu()
        torch.lazyt.set_rng_state_all(states)
        close(torch.rand(4, device=B), first)
        g = torch.Generator(device=B).manual_seed(5)
        close(torch.rand(4, device=B, generator=g), b)
        with torch.lazyt.device(1):
            torch.lazyt.manual_seed(9)
        assert torch.lazyt.initial_seed() == 5 and torch.lazyt.default_generators[1].initial_seed() == 9
    """)


def test_streams_events_and_waits_belong_to_a_device(run):
    run("""
        a, b = torch.ones(64, 64, device=A), torch.ones(64, 64, device=B)
        starts, ends = ([torch.Event(device=d, enable_timing=True) for d in (A, B)] for _ in range(2))
        for device, t, start, end in zip((0, 1), (a, b), starts, ends):
            with torch.lazyt.device(device):
                start.record(torch.lazyt.current_stream(device))
                result = t @ t
                end.record(torch.lazyt.current_stream(device))
        for start, end in zip(starts, ends):
            end.synchronize()
            assert start.elapsed_time(end) >= 0
        assert torch.lazyt.current_stream(1).device.index == 1
        (a + 1, b + 1)
        c, d = a + 1, b + 1
        lazyt.mark_step(B)
        assert lazyt._C.is_pending(c) and not lazyt._C.is_pending(d)
        torch.lazyt.synchronize(0)
        assert not lazyt._C.is_pending(c)
        lazyt.wait_device_ops([A, B])
        raises(lambda: lazyt.mark_step("lazyt:2"), "lazyt:2")
    """)


def test_memory_is_counted_by_device(run):
    run("""
        import gc
        lazyt.devices()
        before = [torch.lazyt.memory_allocated(i) for i in (0, 1)]
        x = torch.ones(1 << 20, device=B) + 1
        torch.lazyt.synchronize(B)
        after = [torch.lazyt.memory_allocated(i) for i in (0, 1)]
        assert after[0] == before[0] and after[1] - before[1] >= 4 << 20, (before, after)
        torch.accelerator.empty_cache()
    """)


def test_tensors_are_saved_and_pickled_with_their_device(run):
    run("""
        import copy, io
        t = torch.arange(3.0, device=B)
        file = io.BytesIO()
        torch.save({"t": t}, file)
        for where, device in ((None, B), (A, A), ("cpu", "cpu")):
            file.seek(0)
            back = torch.load(file, map_location=where)["t"]
            assert back.device == torch.device(device) and back.tolist() == [0, 1, 2]
        assert copy.deepcopy(t).device == torch.device(B)
        assert (t.new_zeros(2).device, torch.full_like(t, 3).device, t.clone().device) == (torch.device(B),) * 3
        assert torch.full_like(t, 3, device=A).device == torch.device(A)
        m = torch.nn.Linear(2, 2).to(B)
        m.weight.data = m.weight.data + 1
        assert m.to(A).weight.device == torch.device(A)
        t.resize_(5)
        assert t.device == torch.device(B) and t[:3].tolist() == [0, 1, 2]
        x = torch.ones(3, 3, device=B)
        assert x[torch.tensor([0, 2])].device == torch.device(B)  # an index on the CPU
        assert torch.nonzero(x).device == torch.device(B)         # on the host, and back
    """)


def test_one_plugin_serves_two_devices_and_copies_between_them(run):
    run(
        """
        assert [d["name"] for d in lazyt.devices()] == ["ts", "ts"]
        x = torch.arange(6.0, device=A)
        y = (x + 1).to(B)
        x.mul_(0)
        assert (y * 2).tolist() == [2, 4, 6, 8, 10, 12] and x.sum().item() == 0
        assert lazyt.metrics.counter_value("DeviceCopyWithinPlugin") > 0
        """,
        devices="ts:0,ts:0",
    )


def test_a_failed_program_spoils_what_was_copied_from_it(run):
    run("""
        x = torch.ones(3, device=A)
        bad = x[torch.tensor([7], device=A)].to(B) + 1   # an index out of range shows when it runs
        raises(lambda: bad.cpu(), "out of")
        close(torch.ones(3, device=B) + 1, torch.full((3,), 2.0))
    """)


def test_use_backend_changes_one_device(run):
    run("""
        x, y = torch.ones(3, device=A), torch.ones(3, device=B) * 2
        lazyt.use_backend("onednn:0", A)
        assert [d["name"] for d in lazyt.devices()] == ["onednn", "onednn"]
        with torch.lazyt.device(1):
            lazyt.use_backend("ts")
        assert [d["name"] for d in lazyt.devices()] == ["onednn", "ts"]
        close(x + 1, torch.full((3,), 2.0)), close(y + x.to(B), torch.full((3,), 3.0))
        raises(lambda: lazyt.use_backend("ts:1", A), "there is no number 1")
        raises(lambda: lazyt.use_backend("ts:x", A), "'ts:x' is no device")
        assert torch.lazyt.device_count() == 2
    """)


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ("ts,", "LAZYT_DEVICES: a device without a backend"),
        ("ts:one", "'ts:one' is no device"),
        ("ts," * 32 + "ts", "at most 32"),
    ],
)
def test_a_list_that_cannot_be_read_is_an_error_at_the_first_use(run, devices, words):
    run(f"raises(lambda: (torch.ones(2, device='lazyt') + 1).cpu(), {words!r})", devices=devices)


def test_a_device_that_is_not_there_fails_alone(run):
    run(
        """
        assert torch.lazyt.device_count() == 3
        assert (torch.ones(2, device=A) + 1).tolist() == [2, 2]
        raises(lambda: (torch.ones(2, device=B) + 1).cpu(), "no_such_backend", "LAZYT_DEVICES")
        raises(lambda: (torch.ones(2, device="lazyt:2") + 1).cpu(), "has 1 device, there is no number 4")
        assert (torch.ones(2, device=A) + 1).tolist() == [2, 2]
        """,
        devices="ts,no_such_backend,ts:4",
    )


def test_without_a_list_the_devices_are_those_of_the_plugin(run_python):
    run_python("""
        import lazyt, torch
        x = torch.ones(2, device="lazyt") + 1
        assert torch.lazyt.device_count() == 1 and lazyt.devices()[0]["name"] == lazyt.backend()["name"]
        assert x.tolist() == [2, 2]
    """)


def test_all_devices_of_one_plugin_are_there_and_bytes_move_within_it(run_python, fake_cuda):
    run_python(
        HEAD
        + """
assert torch.lazyt.device_count() == 2
assert [(d["name"], d["device_index"]) for d in lazyt.devices()] == [("cuda", 0), ("cuda", 1)]
x = torch.arange(6.0, device=A) + 1
y = x.to(B) * 2
assert y.tolist() == [2, 4, 6, 8, 10, 12] and y.device.index == 1
assert lazyt.metrics.counter_value("DeviceCopyWithinPlugin") > 0
""",
        **fake_cuda,
    )


def test_the_process_ends_with_copies_under_way(run):
    assert "end" in run("""
        x = torch.ones(512, 512, device=A)
        for _ in range(8):
            x = (x @ x).clamp(max=1).to(B).to(A)
        print("end")
    """)


def test_data_parallel_splits_a_batch_over_the_devices(run):
    out = run("""
        torch.manual_seed(0)
        plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        x = torch.randn(6, 4)
        plain(x).square().sum().backward()
        expected, gradients = plain(x).detach(), [p.grad.clone() for p in plain.parameters()]
        plain.zero_grad()
        model = torch.nn.DataParallel(plain.to(A), device_ids=[0, 1])
        y = model(x.to(A))
        y.square().sum().backward()
        assert y.device == torch.device(A)
        close(y.detach(), expected)
        for p, g in zip(plain.parameters(), gradients):
            close(p.grad, g)
        print("done")
    """)
    assert "done" in out
