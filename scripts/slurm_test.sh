#!/bin/bash
# Sweeps over several processes on a real SLURM of one node and under mpirun, compared with a sweep of one process: a job
# array by `ropewalk sweep --slurm`, of which a task is killed half way and requeued, and four ranks, of which one is killed.
# SLURM is started for this alone, in a folder of its own, and ended again. Needs root (or sudo), and the packages of
# `scripts/deps.sh slurm`.
#   usage: scripts/slurm_test.sh BUILD
set -euo pipefail
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "slurm_test.sh: SLURM's daemons need root, and there is no sudo" >&2; exit 1; }
  exec sudo "$0" "$build"
fi
for program in munged mungekey slurmctld slurmd sbatch srun mpirun; do
  command -v "$program" >/dev/null || PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || {
    echo "slurm_test.sh: $program is missing; run scripts/deps.sh slurm" >&2
    exit 1
  }
done
export PATH=$PATH:/usr/sbin
work=$(mktemp -d "${TMPDIR:-/tmp}/ropewalk-slurm.XXXXXX")
chmod 755 "$work"
daemons=()

end() {
  status=$?
  set +e
  if [ -n "${SLURM_CONF:-}" ]; then
    scancel --me 2>/dev/null
    for _ in $(seq 50); do [ -z "$(squeue -h 2>/dev/null)" ] && break; sleep 0.1; done
  fi
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null; done
  for pid in "${daemons[@]}"; do
    for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$pid" 2>/dev/null
  done
  if [ "$status" -ne 0 ]; then
    for log in "$work"/*.log "$work"/sweep/*.log; do [ -s "$log" ] && { echo "---- $log"; tail -n 15 "$log"; }; done >&2
    echo "slurm_test.sh: failed" >&2
  fi
  rm -rf "$work"
  exit "$status"
}
trap end EXIT
trap 'exit 130' INT TERM

# The command, until it succeeds or this many seconds have passed.
until_true() {
  for _ in $(seq $(($1 * 5))); do "${@:2}" && return 0; sleep 0.2; done
  echo "slurm_test.sh: not within $1 s: ${*:2}" >&2
  return 1
}

step() { printf '== %s (%s s)\n' "$1" "$SECONDS"; }

start_slurm() {
  mkdir -p "$work"/{munge,ctld,d}
  mungekey --create --keyfile "$work/munge/key" --bits 1024
  chmod 755 "$work/munge"
  chmod 600 "$work/munge/key"
  munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" --num-threads=1 >"$work/munged.log" 2>&1 &
  daemons+=($!)
  until_true 10 test -S "$work/munge/socket"
  local host port
  host=$(hostname -s)
  port=$((20000 + RANDOM % 20000))
  cat >"$work/slurm.conf" <<CONF
ClusterName=ropewalk
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$work/ctld
SlurmdSpoolDir=$work/d
SlurmctldPidFile=$work/ctld/pid
SlurmdPidFile=$work/d/pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=1
MinJobAge=600
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF=$work/slurm.conf
  slurmctld -D -f "$SLURM_CONF" >"$work/slurmctld.log" 2>&1 &
  daemons+=($!)
  slurmd -D -f "$SLURM_CONF" -N "$host" >"$work/slurmd.log" 2>&1 &
  daemons+=($!)
  until_true 20 node_is_idle
}
node_is_idle() { [ "$(sinfo -h -o %T 2>/dev/null)" = idle ]; }
job_has_ended() { [ -z "$(squeue -h -j "$1" -t PENDING,RUNNING,COMPLETING,SUSPENDED 2>/dev/null)" ]; }

# The rows of a sweep as lines that compare: without the time that they took and their place in a file.
rows() {
  python3 - "$1" <<'PYTHON'
import json, pathlib, sys
rows = {}
for path in pathlib.Path(sys.argv[1]).glob("results*.jsonl"):
    for line in path.read_text().splitlines()[1:]:
        row = json.loads(line)
        row.pop("seconds"), row.pop("place", None)
        assert rows.setdefault(row["identity"], row) == row, row["identity"]
assert rows and not any(row["unfinished"] for row in rows.values())
print("\n".join(json.dumps(rows[key], sort_keys=True) for key in sorted(rows)))
PYTHON
}
compare() {
  rows "$1" >"$work/rows"
  cmp "$work/rows" "$work/expected"
  echo "$(wc -l <"$work/rows") rows of $(ls "$1" | grep -c '^results.*jsonl') files: those of an undisturbed sweep"
}
lines_of() { cat "$1"/units*.jsonl 2>/dev/null | wc -l; }
has_lines() { [ "$(lines_of "$1")" -ge "$2" ]; }

"$root/scripts/heldout_text.sh" >"$work/text.txt"
sweep=("$build/ropewalk" sweep "$root/models" --text "$work/text.txt" --lengths 512,1024,2048 --anchors 4 --passkey-trials 4
  --methods none,linear,ntk,yarn,rerope --budget none)

step "undisturbed, one process of one thread"
"${sweep[@]}" --threads 1 -o "$work/whole" >/dev/null 2>"$work/whole.log"
rows "$work/whole" >"$work/expected"

step "SLURM"
start_slurm
mkdir "$work/sweep"
cd "$work/sweep"
"${sweep[@]}" --threads 1 -o out --slurm >script 2>"$work/script.log"
grep '^#SBATCH' script
# The estimate is of minutes; three tasks all the same. Without logs of /dev/null nothing is known of a failure.
job=$(sbatch --parsable --array=1-3 --mem=500M script)
until_true 60 has_lines out 6
before=$(lines_of out)
step "task 2 of job $job is killed by signal 9 behind $before parts, and requeued"
until_true 20 grep -q . "ropewalk-${job}_2.log"
victim=
for pid in $(pgrep -f "ropewalk sweep .*--shard auto"); do
  if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx SLURM_ARRAY_TASK_ID=2; then victim=$pid; fi
done
[ -n "$victim" ] || { echo "slurm_test.sh: task 2 does not run" >&2; exit 1; }
kill -9 "$victim"
until_true 20 sh -c "! kill -0 $victim 2>/dev/null"
until_true 20 scontrol requeue "${job}_2"
until_true 90 job_has_ended "$job"
[ "$(grep -c 'threads; rows in out/results.2-of-3.jsonl' "ropewalk-${job}_2.log")" = 2 ] || {
  echo "slurm_test.sh: task 2 did not start twice" >&2
  exit 1
}
compare out
"$build/ropewalk" report out >/dev/null

step "srun -n 2 of one job"
srun -n 2 --cpus-per-task=1 --mem=500M "${sweep[@]}" -o srun --shard auto >/dev/null 2>"$work/srun.log"
compare srun

step "mpirun -n 4, rank 3 killed"
cat >rank <<'RANK'
#!/bin/bash
[ "$OMPI_COMM_WORLD_RANK" = 3 ] || exec "$@"
"$@" &
until [ -s mpi/units.4-of-4.jsonl ] || ! kill -0 $!; do sleep 0.02; done
kill -9 $!
wait $!
echo $? >killed
RANK
chmod +x rank
mpirun --allow-run-as-root --oversubscribe -n 4 ./rank \
  "${sweep[@]}" --threads 1 -o mpi --shard auto >"$work/mpi.out" 2>"$work/mpi.log"
compare mpi
[ "$(cat killed)" = 137 ] || { echo "slurm_test.sh: rank 3 was not killed" >&2; exit 1; }
grep -q 'Report: mpi/report.html' "$work/mpi.out"
[ "$(grep -c 'Report: ' "$work/mpi.out")" = 1 ]
step done
