"""Timing on a noisy machine: candidates take turns, and only ratios within one run count."""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def interleaved(candidates: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each candidate once per round, the order turned each time; what each returned."""
    names = list(candidates)
    results: dict[str, list[float]] = {name: [] for name in names}
    for r in range(rounds):
        for name in names[r % len(names) :] + names[: r % len(names)]:
            results[name].append(candidates[name]())
    return results


def timed(body: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    body()
    return time.perf_counter() - begin


def medians(results: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in results.items()}


def init_upstream() -> None:
    """torch._lazy with its TorchScript backend, device "lazy"."""
    import torch._lazy
    import torch._lazy.ts_backend

    torch._lazy.ts_backend.init()


def environment() -> dict[str, Any]:
    import os

    import torch

    return {
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def header(**more: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in {**environment(), **more}.items())


def write_json(path: str | None, data: dict[str, Any]) -> None:
    if path:
        Path(path).write_text(json.dumps({**environment(), **data}, indent=1) + "\n", encoding="utf-8")
