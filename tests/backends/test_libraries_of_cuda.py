"""What the CUDA plugin leaves to NVIDIA's libraries, on stand-ins for them: no more than asked, and the same values."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FAKE = os.environ.get("LAZYT_FAKE_CUDA_LIBRARIES")
pytestmark = pytest.mark.skipif(
    os.environ.get("LAZYT_BACKEND") != "cuda" or not FAKE, reason="run with LAZYT_BACKEND=cuda on the stand-ins"
)
BOUNDS = {"tf32": 0.01, "float": 1e-5, "double": 1e-12, "lazyt_f16": 0.005, "lazyt_bf16": 0.03}


def plans(kind, folder, **environment):
    kept = {k: v for k, v in os.environ.items() if k != "LAZYT_CUDA_LIBRARIES"}
    kept |= {"LAZYT_CUDA_DUMP": str(folder), "LAZYT_CUDA_CACHE_DIR": str(folder / "cache"), **environment}
    for name in ("cublaslt", "cudnn"):
        kept[f"LAZYT_CUDA_{name.upper()}"] = str(Path(FAKE, f"lazyt_fake_{name}.so").resolve())
    script = Path(__file__).with_name("library_plans.py")
    done = subprocess.run([sys.executable, script, kind], env=kept, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def epilogues(tmp_path_factory):
    return plans("epilogues", tmp_path_factory.mktemp("plans"))


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return plans("windows", tmp_path_factory.mktemp("plans"))


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    return plans("chains", tmp_path_factory.mktemp("plans"))


@pytest.fixture(scope="module")
def attention(tmp_path_factory):
    return plans("attention", tmp_path_factory.mktemp("plans"))


def calls(plan):
    """What each call of cuBLASLt computes beside its product."""
    words = [step.split()[3:] for step in plan["steps"] if step.startswith("cublasLt")]
    return sorted(" ".join(w) for w in words)


TRAINED = {
    "relu": ["", "", "bias", "bias relu mask", "relu gradient sum"],
    "relu of three dims": ["", "", "bias", "bias relu mask", "relu gradient sum"],
    "relu without bias": ["", "", "", "relu gradient", "relu mask"],
    "relu at inference": ["bias", "bias relu"],
    "gelu": ["", "", "bias", "bias gelu kept", "gelu gradient sum"],
    "gelu of three dims": ["", "", "bias", "bias gelu kept", "gelu gradient sum"],
    "gelu at inference": ["bias", "bias gelu"],
    "gelu whose operand is read": ["bias", "bias gelu kept"],
    "linear after linear": ["", "", "bias", "bias", "sum of a"],
}


@pytest.mark.parametrize("name", TRAINED)
def test_an_activation_its_gradient_and_the_bias_gradient_are_part_of_the_product(epilogues, name):
    assert calls(epilogues[name]) == TRAINED[name]


@pytest.mark.parametrize(
    "name", ["relu whose operand is read", "gelu in f32", "gelu in f64", "gelu by erf", "gelu of 20 columns"]
)
def test_what_the_library_does_otherwise_or_not_is_left_to_kernels(epilogues, name):
    assert not any("relu" in call or "gelu" in call for call in calls(epilogues[name]))


REFUSED = {
    "relu, refused masks": ["", "", "", "bias", "bias relu"],
    "relu, refused sums": ["", "", "bias", "bias relu mask", "relu gradient"],
    "relu, refused gradients": ["", "", "", "bias", "bias relu mask"],
    "relu, refused all": ["", "", "", "bias", "bias"],
    "sums, refused all": ["", "", "", "bias", "bias"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_library_has_no_algorithm_for_is_asked_for_in_parts(epilogues, name):
    assert calls(epilogues[name]) == REFUSED[name]


def wrong(all_plans):
    """Those further from eager than their dtype's bound. Calls of libraries name the dtype."""
    found = {}
    for name, plan in all_plans.items():
        words = [s.split() for s in plan["steps"] if s.startswith("cu")]
        dtype = next((w[1] if w[0] == "cublasLt" else w[2] for w in words), "float")
        if plan["error"] > BOUNDS["tf32" if "tf32" in name else dtype]:
            found[name] = plan["error"]
    return found


def test_values_are_those_of_eager(epilogues):
    assert wrong(epilogues) == {}


def test_products_alike_are_asked_about_once(epilogues):
    assert len(calls(epilogues["eight alike"])) == 8
    assert epilogues["eight alike"]["questions"] == 3  # the first reads an input, the last writes an output
    assert epilogues["eight in tf32"]["questions"] == 3  # another precision, another question


def convolutions(plan):
    return sorted(" ".join([s.split()[1], *s.split()[3:]]) for s in plan["steps"] if s.startswith("cudnn"))


# Two convolutions and a transposed one, and their gradients but that of the input.
WITH_BIAS = ["data", "data bias", "forward", "forward", "forward bias", "weights", "weights", "weights"]
ALONE = [c.removesuffix(" bias") for c in WITH_BIAS]


@pytest.mark.parametrize("name", ["f16", "f16 channels last", "bf16", "f32 in tf32"])
def test_convolutions_and_their_bias_are_one_call(windows, name):
    assert convolutions(windows[name]) == WITH_BIAS


@pytest.mark.parametrize("name", ["f32", "f32 channels last", "channels last x alone", "engines of the second choice"])
def test_engines_that_round_operands_or_give_other_bits_each_time_are_not_taken(windows, name):
    # The stand-in's first engine works in TF32, the second one it calls not deterministic; the third adds no bias to a gradient.
    assert convolutions(windows[name]) == sorted("data" if c == "data bias" else c for c in WITH_BIAS)


@pytest.mark.parametrize("name", ["f64", "no engine for a bias"])
def test_a_bias_that_no_engine_takes_is_added_by_a_kernel(windows, name):
    assert convolutions(windows[name]) == ALONE


def test_convolutions_of_one_and_three_dims(windows):
    assert convolutions(windows["one dim"]) == ["forward bias", "weights"]
    assert convolutions(windows["three dims"]) == ["forward bias", "weights"]


def test_without_an_engine_a_kernel_convolves(windows):
    assert convolutions(windows["no engine"]) == []
    assert sum("convolution" in s for s in windows["no engine"]["steps"]) >= len(ALONE)


def test_values_of_convolutions_are_those_of_eager(windows):
    assert wrong(windows) == {}


BLOCK = ["forward bias", "forward bias relu", "forward scale bias", "forward scale bias add relu", "forward scale bias relu"]
CHAINED = {
    "f32": BLOCK,
    "f16": BLOCK,
    "channels first": ["forward", "forward", "forward bias", "forward bias", "forward bias relu"],
    "another activation": ["forward bias", "forward bias", "forward scale bias", "forward scale bias", "forward scale bias add"],
    "f64": ["forward"] * 5,
    "refused": ["forward"] * 5,
    "training": ["data", "forward bias", "forward bias relu", "weights", "weights"],
}


@pytest.mark.parametrize("name", CHAINED)
def test_a_norm_at_inference_another_tensor_and_relu_are_part_of_the_convolution(chains, name):
    assert convolutions(chains[name]) == CHAINED[name]


def test_such_a_block_is_a_call_for_each_convolution_beside_its_scales(chains):
    # One kernel lays x, two make scales: of the norms behind a convolution without bias, and with one.
    assert len(chains["f32"]["steps"]) == 5 + 1 + 2, chains["f32"]["steps"]


def test_values_of_convolutions_with_what_is_behind_them_are_those_of_eager(chains):
    assert wrong(chains) == {}


def attentions(plan):
    return [s.removeprefix("cudnn ") for s in plan["steps"] if "attention" in s]


ATTENDED = {
    "f16": ["attention lazyt_f16", "attention_backward lazyt_f16"],
    "f16 causal": ["attention lazyt_f16 causal", "attention_backward lazyt_f16 causal"],
    "bf16 causal": ["attention lazyt_bf16 causal", "attention_backward lazyt_bf16 causal"],
    "a scale": ["attention lazyt_f16 causal", "attention_backward lazyt_f16 causal"],
    "shared keys": ["attention lazyt_f16 causal", "attention_backward lazyt_f16 causal"],
    "inference": ["attention lazyt_f16 causal"],
}


@pytest.mark.parametrize("name", ATTENDED)
def test_attention_of_16_bits_is_one_call_and_so_is_its_backward(attention, name):
    assert attentions(attention[name]) == ATTENDED[name]


@pytest.mark.parametrize("name", ["f32", "heads of 12", "a mask", "no engine"])
def test_attention_that_the_library_does_not_take_is_left_to_kernels(attention, name):
    steps = attentions(attention[name])
    assert steps and all(s.startswith("kernel attention") for s in steps)


def test_a_gradient_that_the_library_adds_up_in_no_fixed_order_is_not_its_when_that_matters(attention):
    forward, *backward = attentions(attention["deterministic"])
    assert forward == "attention lazyt_f16 causal"
    assert backward and all(s.startswith("kernel attention") for s in backward)


def test_values_of_attention_are_those_of_eager(attention):
    assert wrong(attention) == {}


def test_a_call_that_fails_is_the_error_of_what_depends_on_it(tmp_path):
    report = plans("broken_run", tmp_path)
    assert "cuDNN: cudnnBackendExecute failed: CUDNN_STATUS_EXECUTION_FAILED (5000)" in report["error"]
    assert "aten::convolution" in report["error"]
    assert report["after"]
