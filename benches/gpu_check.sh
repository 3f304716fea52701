#!/usr/bin/env bash
# All checks that need a GPU, in under 8 minutes: benches/gpu_check.sh [OUT]
# Needs the release binary in target/release (or VERIHARNESS_BIN), an NVIDIA driver, and for two steps compute-sanitizer.
# Writes raw results to OUT and prints a short table last. Every step runs, whatever another did; the exit code is the
# number of steps that failed.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=${VERIHARNESS_BIN:-target/release/veriharness}
out=${1:-gpu_check}
mkdir -p "$out"
export VERIHARNESS_HOME="$out/home"
table=()
failed=0

# step NAME SECONDS COMMAND...: its output goes to NAME.txt
step() {
  local name=$1 limit=$2 started=$SECONDS code
  shift 2
  timeout "$limit" "$@" >"$out/$name.txt" 2>&1
  code=$?
  [ $code -eq 0 ] || failed=$((failed + 1))
  table+=("$(printf '%-24s %-8s %4d s' "$name" "$([ $code -eq 0 ] && echo passed || echo "FAILED $code")" $((SECONDS - started)))")
}

# The reply of a tiny checkpoint is the CPU's, token by token.
same_as_cpu() {
  local model backend
  for model in models/tiny/*/; do
    for backend in cpu cuda; do
      "$bin" generate --backend $backend --kv-mib 64 --max-tokens 48 --model "$model" "Where is the key?" >"$out/$backend.reply" || return 1
    done
    cmp "$out/cpu.reply" "$out/cuda.reply" && echo "$model: $(wc -c <"$out/cuda.reply") bytes, the same"
  done
}

bench() {
  "$bin" bench --synthetic "$1" --pp 512,1024 --tg 64 --batch 1,4,16,32 --repeat 4 --format json
}

small="bench --synthetic tiny-awq --pp 40 --tg 4 --batch 1,3 --repeat 2 --kv-mib 16"
nvidia-smi >"$out/nvidia-smi.txt" 2>&1
step doctor 30 "$bin" doctor
step same_as_cpu 60 same_as_cpu
step selfcheck_tiny 30 "$bin" doctor --gpu tiny-awq
step selfcheck_8b 60 "$bin" doctor --gpu llama-3.1-8b-awq
step selfcheck_14b 90 "$bin" doctor --gpu qwen2.5-coder-14b-awq
if command -v compute-sanitizer >/dev/null; then
  step memcheck 60 compute-sanitizer --tool memcheck --error-exitcode 9 "$bin" $small
  step racecheck 60 compute-sanitizer --tool racecheck --error-exitcode 9 "$bin" $small
fi
# The code of a T4, compiled by the driver for this GPU.
mkdir -p "$out/turing"
cp kernels/prebuilt/compute_75.ptx.gz "$out/turing"
VERIHARNESS_KERNELS="$out/turing" step turing_tiny 60 "$bin" doctor --gpu tiny-awq
VERIHARNESS_KERNELS="$out/turing" step turing_8b 90 "$bin" doctor --gpu llama-3.1-8b-awq
step bench_8b 90 bench llama-3.1-8b-awq
step bench_14b 120 bench qwen2.5-coder-14b-awq

printf '%s\n' "${table[@]}" | tee "$out/table.txt"
for model in 8b 14b; do
  python3 - "$out/bench_$model.txt" <<'PY' | tee -a "$out/table.txt"
import json, sys
text = open(sys.argv[1]).read()
try:
    rows = json.loads(text[text.index("{\n") if "{\n" in text else text.index("{"):])["rows"]
    for row in rows:
        share = row["limit_percent"]
        share = "" if share is None else f"{share:5.0f} % of the floor"
        print(f'{row["model"]:36} {row["test"]:9} {row["tokens_per_second"] or 0:10.1f} t/s {share}')
except (ValueError, KeyError, OSError) as error:
    print(f"{sys.argv[1]}: no figures: {error}")
PY
done
exit $failed
