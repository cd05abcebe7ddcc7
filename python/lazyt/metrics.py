"""What happened: counters and timers, by the names that users of `torch._lazy` know.

CachedCompile, UncachedCompile, CreateLtcTensor, DestroyLtcTensor, DeviceDataCacheMiss, MarkStep;
`lazyt::<op>` for each operator recorded, `aten::<op>` for each that ran on the host (a timer, too: the kernel's
time without its copies), `Flush<Reason>` for each cut. CompiledAhead counts the programs (of UncachedCompile) that
were compiled before their step was recorded, FollowedAhead the steps that were recorded along such a program; the timers
PrepareAheadTime and CompileAheadTime are what that took, used or not.
LaunchBegun counts how often a step that is known, or recorded along such a program, began to run before it was recorded
(LAZYT_PIECE_BYTES), SharedExecutable the parts of programs that were compiled for an earlier one.
"""

from . import _C


def reset() -> None:
    """Sets all counters to 0 and empties all timers."""
    _C.reset_counters()


def counter_names() -> list[str]:
    """Names of the counters that are not 0."""
    return sorted(_C.counters())


def counter_value(name: str) -> int:
    """A counter's value; 0 when nothing has counted."""
    return _C.counters().get(name, 0)


def counters() -> dict[str, int]:
    """All counters that are not 0."""
    return _C.counters()


def metric_names() -> list[str]:
    """Names of the timers."""
    return list(_C.metric_names())


def metric_data(name: str) -> tuple[int, float, list[float]] | None:
    """(count, seconds in all, the last samples in seconds) of a timer; None when there is none."""
    count, total, samples = _C.metric(name)
    return (count, total, list(samples)) if count else None


def _ran_on_host(name: str) -> bool:
    return "::" in name and not name.startswith("lazyt::")


def fallbacks() -> dict[str, int]:
    """Operators that ran on the host, and how often. Reading a single value counts as one."""
    return {name: n for name, n in _C.counters().items() if _ran_on_host(name)}


def fallback_reasons() -> dict[str, str]:
    """Why operators ran on the host and where first. Values that the program asked for are not among them."""
    return {name: text for name, text in _C.host_reasons().items() if name in fallbacks()}


def report() -> str:
    """All of it as a table."""
    lines = []
    if names := sorted(metric_names()):
        lines.append(f"{'timer':<32}{'count':>10}{'total ms':>12}{'median ms':>12}{'p95 ms':>12}")
        for name in names:
            if not (data := metric_data(name)):
                continue
            count, total, samples = data
            ordered = sorted(samples)
            median, p95 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]
            lines.append(f"{name:<32}{count:>10}{total * 1e3:>12.2f}{median * 1e3:>12.3f}{p95 * 1e3:>12.3f}")
        lines.append("")
    values = _C.counters()
    groups = {
        "counter": [n for n in values if "::" not in n],
        "recorded operator": [n for n in values if n.startswith("lazyt::")],
        "ran on the host": [n for n in values if _ran_on_host(n)],
    }
    for title, names in groups.items():
        if names:
            lines.append(f"{title:<48}{'count':>10}")
            lines += [f"{name:<48}{values[name]:>10}" for name in sorted(names)]
            lines.append("")
    return "\n".join(lines).rstrip()


_REASONS = {
    "ValueNeeded": "the program asked for a value (item, print, .cpu(), a condition)",
    "MarkStep": "lazyt.mark_step()",
    "OptimizerStep": "an optimizer's step ended",
    "NodeBudget": "more operators were pending than LAZYT_MAX_PENDING",
    "HostOperator": "an operator had to run on the host",
    "OtherThread": "another thread used what was pending",
    "TimedEvent": "an event that measures time was recorded",
    "Setting": "the default dtype, determinism or the precision of products was set",
    "BackendChange": "another backend was chosen",
    "Exit": "the process ended",
}


def explanation() -> str:
    """Why traces were cut, what was compiled, what ran on the host."""
    values = _C.counters()
    cuts = {n.removeprefix("Flush"): v for n, v in values.items() if n.startswith("Flush")}
    lines = [f"{sum(cuts.values())} traces were cut:"]
    lines += [f"  {v:>8} x {_REASONS.get(n, n)}" for n, v in sorted(cuts.items(), key=lambda i: -i[1])]
    compiled, cached = values.get("UncachedCompile", 0), values.get("CachedCompile", 0)
    _, seconds, _ = _C.metric("CompileTime")
    lines.append(
        f"{compiled} programs were compiled ({seconds:.3f} s), {cached} launches used one that was there."
    )
    host = fallbacks()
    lines.append(f"{len(host)} operators ran on the host{':' if host else '.'}")
    reasons = fallback_reasons()
    for name, count in sorted(host.items(), key=lambda i: -i[1]):
        _, seconds, _ = _C.metric(name)
        took = f" ({seconds * 1e3:.3f} ms)" if seconds else ""
        lines.append(f"  {count:>8} x {name}{took}" + (f": {reasons[name]}" if name in reasons else ""))
    if moved := values.get("FallbackBytes"):
        lines.append(f"They read and wrote {moved} bytes inside of steps.")
    return "\n".join(lines)
