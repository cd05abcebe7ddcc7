#!/usr/bin/env bash
# Everything that only a machine with an NVIDIA GPU can show, in stages: first what says most. Together they may take half an
# hour and more; no stage takes ten minutes.
#
#   run.sh --pack                   on a machine with a network: puts what the build needs of the system, and a bare
#                                   machine lacks, into subprojects/ and gpu-deps/ (ignored by git; take them along)
#   run.sh --dry-run                what would be run; checks that every file and option is there
#   run.sh [--budget S] [--out DIR] [STAGE...]
#                                   the stages that have not been run yet, then those that did not pass; or these. No stage is
#                                   begun that S seconds (all in all, 0: no end) do not suffice for: run it again and it goes
#                                   on. DIR/report.md tells of all of them, written anew after each; what the script
#                                   remembers stays in the build folder, so DIR may be an empty one each time
#   run.sh --list                   the stages, and the seconds that each may take
#
# Status 0: what was to be run passed; 1: a stage did not; 3: none did not, but the budget left some out. Where a command may
# take ten minutes: `run.sh --budget 580 --out DIR` until the report tells of all stages.
#
# Needs Python 3.12 or later with PyTorch 2.11 or later, g++ and nvcc's headers; no network, no pip (meson, ninja and pytest
# are packed, and taken where the machine has none). A stage
# that fails does not stop those after it, unless it is `build`. Options by environment:
#   PYTHON   the Python that has PyTorch (python3)        LAZYT_GPU_BUILD  a build folder to use as it is, with
#   STAGE_S  seconds for each stage, whatever is below    LAZYT_GPU_VENV   the environment that it is installed into
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
root=$PWD
dry=
budget=0
python=${PYTHON:-python3}
build=${LAZYT_GPU_BUILD:-$root/build-gpu}
kept=$build/report # status and log of each stage
out=$kept
venv=${LAZYT_GPU_VENV:-$root/build-gpu/venv}
py=$venv/bin/python
PATH=$PATH:$root/gpu-deps/bin:/usr/local/cuda/bin
# The new environment first, then what its parent sees, which may be an environment, too. The plugin looks for the
# wheels of CUDA's libraries there as well: a command that is no Python finds them by nothing else.
if [ -z "${LAZYT_GPU_BUILD:-}" ]; then
  PYTHONPATH=$("$python" -c "import os, sys
own = os.path.join(sys.argv[1], 'lib', 'python%d.%d' % sys.version_info[:2], 'site-packages')
print(':'.join([own, *(p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))), sys.argv[2]]))" \
    "$venv" "$root/gpu-deps/python") && export PYTHONPATH
fi

# In the order of what they say, with the seconds that each may take: half an hour down to `models`.
declare -A limits=([machine]=40 [build]=540 [loading]=40 [tutorial]=120 [conformance]=150 [steps]=220 [operators]=120
  [dlpack]=60 [backends]=420 [graphs]=120 [programs]=150 [tutorial_ts]=90 [memcheck]=200 [models]=150 [compile]=240 [opinfo]=240 [racecheck]=120)
stages=(machine build loading tutorial conformance steps operators opinfo dlpack graphs programs tutorial_ts racecheck memcheck models
  backends compile)

# ---- what each stage runs; every line goes through `run`, so that --dry-run can show it

stage_machine() { # what this machine is
  run nvidia-smi
  run nvcc --version
  run "$python" -c 'import sys, torch; print(sys.version); print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name(0))'
  run g++ --version
  run "$python" -m mesonbuild.mesonmain --version
}

# What is installed, as ninja names it: native tests would take most of the build's time.
installed() {
  [ -z "$dry" ] || return 0
  "$py" -m mesonbuild.mesonmain introspect --targets "$build" | "$py" -c "import json, os, sys
print(*(os.path.relpath(f, sys.argv[1]) for t in json.load(sys.stdin) if t['installed'] for f in t['filename']))" "$build"
}

stage_build() { # without pip: PYTHONPATH has the packages of the environment that has PyTorch
  if [ -z "${LAZYT_GPU_BUILD:-}" ]; then
    local targets
    run "$python" -m venv --without-pip "$venv"
    run "$py" -m mesonbuild.mesonmain setup "$build" -Dbuildtype=release -Dcuda=enabled -Dts=enabled -Dtorch=enabled \
      -Donednn=disabled -Dtests=enabled -Dtools=enabled -Dbench=disabled
    targets=$(installed)
    run ninja -C "$build" $targets
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
stage_conformance() { run "$venv/bin/lazyt" conformance cuda --profile full --filter "$areas" --timeout 60 --junit "$kept/conformance.xml" --artifacts "$kept/failures"; }
stage_operators() { run "$venv/bin/lazyt" conformance cuda --profile full --filter 'Ops.*' --jobs 16 --timeout 60 --junit "$kept/operators.xml" --artifacts "$kept/failures"; }

on_cuda() { run env LAZYT_BACKEND=cuda LAZYT_PLUGIN_PATH= "$@"; }

stage_programs() { on_cuda "$py" -m pytest -q -x --timeout 300 -p no:cacheprovider tests/torch/test_programs.py tests/torch/test_optimizers.py tests/torch/test_autograd.py tests/python/test_training.py; }
# Names what fails as it comes: where the time ends first, the log has them.
stage_backends() {
  local workers=
  "$py" -c 'import xdist' 2>/dev/null && workers='-n 16'
  on_cuda "$py" -m pytest -v $workers --tb=short --timeout 120 -p no:cacheprovider tests/backends
}
stage_opinfo() { on_cuda "$py" tests/torch/opinfo.py --samples 2 --jobs 16 --limit 40 --results "$kept/opinfo.jsonl"; }

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

# Our own kernels: with the libraries' their modules are watched, too, for minutes. Calls of the driver that fail are no errors
# here: some cases ask for more memory than there is. racecheck: what shares memory between the threads of a block.
sharing='Ops.attention_*:Ops.contractions_*:Ops.functions_*:Ops.normalizations_*:Ops.products_*:Ops.reductions_*:Ops.totals_*:Ops.losses_*:Ops.windows_*:Ops.pooling_*:Ops.*sort*:Ops.chains_*'
watched() { # the cases, then the tool and its own options
  local cases=$1
  shift
  run env LAZYT_CUDA_LIBRARIES=off compute-sanitizer --tool "$@" --error-exitcode 9 --target-processes all "$venv/bin/lazyt" conformance cuda --profile quick --jobs 8 --timeout 60 --filter "$cases"
}
stage_memcheck() { watched 'Execute.*:Donation.*:Buffer.*:Lifecycle.*:Ops.*' memcheck --report-api-errors no; }
stage_racecheck() { watched "$sharing" racecheck; }

stage_models() { on_cuda "$py" bench/models.py --check; }
# Steps per second beside eager on the same GPU; beside torch.compile, which compiles for minutes.
stage_steps() { on_cuda "$py" tests/gpu/steps.py --device lazyt,cuda --seconds 1 --json "$kept/steps.json"; }
stage_compile() { on_cuda "$py" tests/gpu/steps.py --device lazyt,compile --seconds 1 --json "$kept/steps_compile.json"; }

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
  local name=$1 limit=$2 begin=$SECONDS status=0
  echo "== $name"
  export -f run in_stage on_cuda watched check_files installed "stage_$name"
  export dry python py venv build kept root sharing areas
  timeout --kill-after 10 "$limit" bash -c "in_stage $name" >"$kept/$name.log" 2>&1 </dev/null || status=$?
  local seconds=$((SECONDS - begin)) said="failed ($status)"
  [ $status -eq 0 ] && said=passed
  [ $status -eq 124 ] && said="did not end within $limit s"
  printf '%s\t%s\n' "$said" "$seconds" >"$kept/$name.status"
  tail -n 3 "$kept/$name.log" | sed 's/^/    /'
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
      if [ -e "$kept/$name.status" ]; then
        IFS=$'\t' read -r said seconds <"$kept/$name.status"
        echo "| $name | $said | $seconds |"
      else
        echo "| $name | not run | |"
      fi
    done
    for name in "${stages[@]}"; do
      [ -e "$kept/$name.log" ] || continue
      printf '\n## %s\n\n```\n' "$name"
      tail -n 60 "$kept/$name.log" | cut -c 1-400
      echo '```'
    done
  } >"$out/report.md"
  tar -czf "$out/logs.tar.gz" -C "$kept" --exclude logs.tar.gz --exclude failures . 2>/dev/null
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
  "$python" -c "import importlib, importlib.metadata, pathlib, shutil
known = importlib.metadata.distribution('pytest-timeout')._path  # else pytest does not find it
shutil.copytree(known, pathlib.Path('gpu-deps/python') / known.name, dirs_exist_ok=True)
for name in 'expecttest mesonbuild pytest _pytest pytest_timeout py iniconfig pluggy packaging pygments'.split():
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
    --list)
      for name in "${stages[@]}"; do echo "$name ${limits[$name]}"; done
      exit
      ;;
    --out | --budget)
      [ $# -ge 2 ] || { echo "$1 wants a value; --help tells"; exit 2; }
      if [ "$1" = --out ]; then out=$(realpath -m "$2"); else budget=$2; fi
      [[ $budget =~ ^[0-9]+$ ]] || { echo "--budget $budget: not a number of seconds"; exit 2; }
      shift
      ;;
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

mkdir -p "$out" "$kept"
if [ ${#wanted[@]} -eq 0 ]; then
  again=()
  for name in "${stages[@]}"; do
    if [ ! -e "$kept/$name.status" ]; then
      wanted+=("$name")
    elif ! grep -q '^passed' "$kept/$name.status"; then
      if [ "$name" = build ]; then wanted+=("$name"); else again+=("$name"); fi
    fi
  done
  wanted+=(${again[@]+"${again[@]}"})
fi
failed=0
left=()
for name in ${wanted[@]+"${wanted[@]}"}; do
  limit=${STAGE_S:-${limits[$name]}}
  if [ "$budget" -gt 0 ] && [ $((SECONDS + limit + 10)) -gt "$budget" ]; then
    left+=("$name")
    [ "$name" = build ] && break
    continue
  fi
  status=0
  run_stage "$name" "$limit" || status=1
  failed=$((failed | status))
  report >/dev/null
  [ "$name" = build ] && [ $status -ne 0 ] && break
done
report
if [ ${#left[@]} -gt 0 ]; then
  echo "the budget does not suffice for: ${left[*]}; run this again"
  exit $((failed ? 1 : 3))
fi
exit $failed
