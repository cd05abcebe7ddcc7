#!/usr/bin/env bash
# Everything that only a machine with an NVIDIA GPU can show, in stages that each fit ten minutes.
#
#   run.sh --pack                   on a machine with a network: puts what the build needs of the system, and a bare
#                                   machine lacks, into subprojects/ and gpu-deps/ (ignored by git; take them along)
#   run.sh --dry-run                what would be run; checks that every file and option is there
#   run.sh [--out DIR] [STAGE...]   the stages that have not passed yet, or these; DIR/report.md tells all
#   run.sh --list
#
# Needs Python 3.12 or later with PyTorch 2.11 or later, g++ and nvcc's headers; no network, no pip (meson, ninja and pytest
# are packed, and taken where the machine has none). A stage
# that fails does not stop those after it, unless it is `build`. Options by environment:
#   PYTHON   the Python that has PyTorch (python3)        LAZYT_GPU_BUILD  a build folder to use as it is, with
#   STAGE_S  seconds that a stage may take (590)          LAZYT_GPU_VENV   the environment that it is installed into
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
root=$PWD
out=$root/build-gpu/report
dry=
python=${PYTHON:-python3}
limit=${STAGE_S:-590}
build=${LAZYT_GPU_BUILD:-$root/build-gpu}
venv=${LAZYT_GPU_VENV:-$root/build-gpu/venv}
py=$venv/bin/python
PATH=$PATH:$root/gpu-deps/bin

stages=(machine build loading conformance operators programs opinfo_forward opinfo_backward tutorial tutorial_ts dlpack
  graphs memcheck racecheck models steps)

# ---- what each stage runs; every line goes through `run`, so that --dry-run can show it

stage_machine() { # what this machine is
  run nvidia-smi
  run nvcc --version
  run "$python" -c 'import sys, torch; print(sys.version); print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name(0))'
  run g++ --version
  run env PYTHONPATH="$root/gpu-deps/python" "$python" -m mesonbuild.mesonmain --version
}

stage_build() { # without pip: an environment that sees the packages of the one that has PyTorch
  if [ -z "${LAZYT_GPU_BUILD:-}" ]; then
    run "$python" -m venv --without-pip "$venv"
    run "$python" -c "import pathlib, sys, sysconfig
site = next(pathlib.Path(sys.argv[1]).glob('lib/python3*/site-packages'))
(site / 'base.pth').write_text('\n'.join([sysconfig.get_path('purelib'), sys.argv[2]]))" "$venv" "$root/gpu-deps/python"
    run "$py" -m mesonbuild.mesonmain setup "$build" -Dbuildtype=release -Dcuda=enabled -Dts=enabled -Dtorch=enabled \
      -Donednn=disabled -Dtests=enabled -Dtools=enabled -Dbench=disabled
    run ninja -C "$build"
    run "$py" -m mesonbuild.mesonmain install -C "$build" --no-rebuild --quiet
  else
    run test -x "$py"
  fi
}

stage_loading() { # libraries, versions, devices, as a user asks for them
  run "$venv/bin/lazyt" list
  run "$venv/bin/lazyt" doctor cuda
  run "$venv/bin/lazyt" info cuda
}

# Of the ABI, area by area; the operators have a stage of their own.
areas='Buffer.*:Capability.*:ClosedDevice.*:Compile.*:Device.*:Dlpack.*:Donation.*:Event.*:Execute.*:Library.*:Lifecycle.*:Process.*:Restart.*:Serialize.*:Status.*:Unload.*'
stage_conformance() { run "$venv/bin/lazyt" conformance cuda --profile full --filter "$areas" --timeout 60 --junit "$out/conformance.xml" --artifacts "$out/failures"; }
stage_operators() { run "$venv/bin/lazyt" conformance cuda --profile full --filter 'Ops.*' --jobs 4 --timeout 60 --junit "$out/operators.xml" --artifacts "$out/failures"; }

on_cuda() { run env LAZYT_BACKEND=cuda LAZYT_PLUGIN_PATH= "$@"; }

stage_programs() { on_cuda "$py" -m pytest -q -x --timeout 300 -p no:cacheprovider tests/torch/test_programs.py tests/torch/test_optimizers.py tests/torch/test_autograd.py tests/python/test_training.py; }
stage_opinfo_forward() { on_cuda "$py" tests/torch/opinfo.py --every 7 --samples 4 --jobs 8 --category float32 --category float16 --category bfloat16 --category int64 --category bool --results "$out/opinfo_forward.jsonl"; }
stage_opinfo_backward() { on_cuda "$py" tests/torch/opinfo.py --every 7 --samples 4 --jobs 8 --category backward --category inplace --category out --results "$out/opinfo_backward.jsonl"; }

stage_tutorial() { # no operator may leave the device
  for fallback in deny allow; do
    on_cuda env LAZYT_FALLBACK=$fallback "$py" examples/mnist.py --epochs 2 --metrics --log-interval 100
  done
  on_cuda "$py" examples/safety.py
}
stage_tutorial_ts() {
  run env LAZYT_BACKEND=ts LAZYT_TS_CUDA=1 LAZYT_PLUGIN_PATH= "$py" examples/mnist.py --epochs 2 --metrics --log-interval 100
  run env LAZYT_TS_CUDA=1 "$venv/bin/lazyt" conformance ts --profile quick --timeout 60 --filter 'Buffer.*:Dlpack.*:Execute.*'
}

stage_dlpack() { on_cuda "$py" -m pytest -q --timeout 300 -p no:cacheprovider tests/gpu/test_sharing_with_torch.py; }

stage_graphs() { # the same losses with and without, and without the driver's pool
  for option in LAZYT_CUDA_GRAPHS=on LAZYT_CUDA_GRAPHS=off LAZYT_CUDA_POOL=off LAZYT_CUDA_LIBRARIES=off; do
    on_cuda env $option "$py" tests/gpu/steps.py --check --device lazyt
  done
}

# A hundred times slower: the areas in which memory is handed about, and one case of each operator's kind.
small='Execute.*:Donation.*:Buffer.*:Lifecycle.*:Ops.pointwise*:Ops.reductions*:Ops.softmax*'
stage_memcheck() { run compute-sanitizer --tool memcheck --error-exitcode 9 --target-processes all "$venv/bin/lazyt" conformance cuda --profile quick --filter "$small" --timeout 300; }
stage_racecheck() { run compute-sanitizer --tool racecheck --error-exitcode 9 --target-processes all "$venv/bin/lazyt" conformance cuda --profile quick --filter 'Ops.reductions*:Ops.softmax*' --timeout 300; }

stage_models() { on_cuda "$py" bench/models.py --check; }
stage_steps() { # steps per second beside eager and torch.compile on the same GPU
  on_cuda "$py" tests/gpu/steps.py --device lazyt,cuda,compile --json "$out/steps.json"
}

# ---- how

run() {
  if [ -n "$dry" ]; then
    echo "    $*"
    check_files "$@"
    return
  fi
  echo "\$ $*"
  "$@"
}

missing=0
check_files() { # files of ours that a command names, and the options that it gives them
  local word file=
  for word in "$@"; do
    case $word in
      pytest | seed | mesonbuild*) file= ;;
      conformance) file=tests/conformance/main.cpp ;;
      tests/*.py | examples/*.py | bench/*.py)
        case " $* " in *" pytest "*) ;; *) file=$word ;; esac
        if ! "$python" -m py_compile "$word"; then
          echo "    $word: is not there or does not compile"
          missing=1
        fi
        ;;
      --*)
        if [ -n "$file" ] && ! grep -qe "\"$word[\"=,]" "$file"; then
          echo "    $file has no option $word"
          missing=1
        fi
        ;;
    esac
  done
}

# The first command that fails ends the stage.
in_stage() { (
  trap 'exit $?' ERR
  set -eE
  "stage_$1"
); }

run_stage() {
  local name=$1 begin=$SECONDS status=0
  echo "== $name"
  export -f run in_stage on_cuda check_files "stage_$name"
  export dry python py venv build out root small areas
  timeout --kill-after 10 "$limit" bash -c "in_stage $name" >"$out/$name.log" 2>&1 </dev/null || status=$?
  local seconds=$((SECONDS - begin)) said="failed ($status)"
  [ $status -eq 0 ] && said=passed
  [ $status -eq 124 ] && said="did not end within $limit s"
  printf '%s\t%s\n' "$said" "$seconds" >"$out/$name.status"
  tail -n 3 "$out/$name.log" | sed 's/^/    /'
  echo "   $said, $seconds s"
  return $status
}

report() {
  {
    echo "# On a GPU"
    echo
    echo "Commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%Y-%m-%d)."
    echo
    echo "| stage | result | seconds |"
    echo "|---|---|---|"
    for name in "${stages[@]}"; do
      if [ -e "$out/$name.status" ]; then
        IFS=$'\t' read -r said seconds <"$out/$name.status"
        echo "| $name | $said | $seconds |"
      else
        echo "| $name | not run | |"
      fi
    done
    for name in "${stages[@]}"; do
      [ -e "$out/$name.log" ] || continue
      printf '\n## %s\n\n```\n' "$name"
      tail -n 60 "$out/$name.log" | cut -c 1-400
      echo '```'
    done
  } >"$out/report.md"
  tar -czf "$out/logs.tar.gz" -C "$out" --exclude logs.tar.gz --exclude failures . 2>/dev/null
  echo "report: $out/report.md, all logs: $out/logs.tar.gz"
}

# Headers of the packages that tools/build/system_packages.sh installs, as Meson's subprojects.
pack() {
  bash tools/build/system_packages.sh
  local name
  for name in fmt CLI nlohmann; do
    [ -d "/usr/include/$name" ] || { echo "/usr/include/$name is not there"; return 1; }
  done
  mkdir -p subprojects/{fmt,cli11,nlohmann_json}/include subprojects/{xxhash,gtest} gpu-deps/{python,bin}
  cp -r /usr/include/fmt subprojects/fmt/include/
  cp -r /usr/include/CLI subprojects/cli11/include/
  cp -r /usr/include/nlohmann subprojects/nlohmann_json/include/
  cp /usr/include/xxhash.h subprojects/xxhash/
  cp -r /usr/src/googletest/googletest subprojects/gtest/
  cp subprojects/packagefiles/fmt/meson.build subprojects/fmt/
  cp subprojects/packagefiles/xxhash/meson.build subprojects/xxhash/
  cp subprojects/packagefiles/googletest/meson.build subprojects/gtest/
  for name in cli11:CLI11:2.4.2 nlohmann_json:nlohmann_json:3.11.3; do
    IFS=: read -r folder dependency version <<<"$name"
    printf "project('%s', 'cpp', version: '%s')\n%s_dep = declare_dependency(include_directories: include_directories('include', is_system: true), version: meson.project_version())\nmeson.override_dependency('%s', %s_dep)\n" \
      "$folder" "$version" "$dependency" "$dependency" "$dependency" >"subprojects/$folder/meson.build"
  done
  # Of Python, what a machine with PyTorch may lack; all but ninja are Python alone.
  "$python" -c "import importlib, pathlib, shutil
for name in 'expecttest mesonbuild pytest _pytest py iniconfig pluggy packaging pygments'.split():
    source = pathlib.Path(importlib.import_module(name).__file__)
    source = source.parent if source.name == '__init__.py' else source
    target = pathlib.Path('gpu-deps/python') / source.name
    if source.is_dir(): shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns('__pycache__'))
    else: shutil.copy(source, target)" || return 1
  cp "$(command -v ninja)" gpu-deps/bin/
  du -sh subprojects gpu-deps
}

wanted=()
while [ $# -gt 0 ]; do
  case $1 in
    --pack) pack; exit ;;
    --dry-run) dry=1 ;;
    --list) printf '%s\n' "${stages[@]}"; exit ;;
    --out) out=$(realpath -m "$2"); shift ;;
    --help | -h) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit ;;
    -*) echo "unknown option $1; --help tells"; exit 2 ;;
    *)
      if ! declare -F "stage_$1" >/dev/null; then
        echo "there is no stage $1: ${stages[*]}"
        exit 2
      fi
      wanted+=("$1")
      ;;
  esac
  shift
done

if [ -n "$dry" ]; then
  for name in "${wanted[@]:-${stages[@]}}"; do
    echo "== $name"
    "stage_$name"
  done
  exit $missing
fi

mkdir -p "$out"
if [ ${#wanted[@]} -eq 0 ]; then
  for name in "${stages[@]}"; do
    grep -qs '^passed' "$out/$name.status" || wanted+=("$name")
  done
fi
failed=0
for name in "${wanted[@]}"; do
  run_stage "$name" || failed=1
  report >/dev/null
  [ "$name" = build ] && [ $failed -ne 0 ] && break
done
report
exit $failed
