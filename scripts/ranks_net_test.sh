#!/usr/bin/env bash
# Two ranks in network namespaces of their own, with a slowed link between them and nothing else: the same perplexity
# as one rank, and the keys really go over the link.
#   scripts/ranks_net_test.sh PROGRAM [RATE] [DELAY]    such as 200mbit 5ms; a kernel without netem limits the rate alone
# It needs root, ip, tc, unshare and an Open MPI build of the program; it says so and ends with 77 where one is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "$1") rate=${2:-200mbit} delay=${3:-5ms}

lacks() { echo "ranks_net_test: skipped: $1"; exit 77; }
[ "$(id -u)" -eq 0 ] || lacks "network namespaces need root"
for tool in ip tc unshare mpirun; do command -v "$tool" >/dev/null || lacks "there is no $tool"; done
mpirun --version | grep -q 'Open MPI' || lacks "its launcher options are those of Open MPI"

name=rw$$
folder=$(mktemp -d)
cleanup() {
  ip netns del "$name-0" 2>/dev/null || true
  ip netns del "$name-1" 2>/dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT
ip netns add "$name-0" 2>/dev/null || lacks "this system allows no network namespaces"
ip netns add "$name-1"
ip link add "$name-a" netns "$name-0" type veth peer name "$name-b" netns "$name-1" 2>/dev/null ||
  lacks "this system allows no veth links"
for end in "0 a" "1 b"; do
  read -r number letter <<<"$end"
  ip -n "$name-$number" addr add "10.77.0.$((number + 1))/24" dev "$name-$letter"
  ip -n "$name-$number" link set lo up
  ip -n "$name-$number" link set "$name-$letter" up
  slow() { ip netns exec "$name-$number" tc qdisc add dev "$name-$letter" root "$@" 2>/dev/null; }
  slow netem rate "$rate" delay "$delay" ||
    { delay="no delay (no netem)" && slow tbf rate "$rate" burst 256kb latency 400ms; } ||
    lacks "this kernel cannot slow a link (netem, tbf)"
done

# In the place of ssh: the other host is the other namespace, under a host name of its own, so that ranks do not think
# that they share memory.
cat >"$folder/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec $name-1 unshare --uts sh -c 'hostname $name-1; exec sh -c "\$0"' "\$*"
AGENT
chmod +x "$folder/agent"

for i in $(seq 400); do echo "And the king $i went unto city $((i * 7 % 101)), and he spake of day $((i * 13 % 53))."; done \
  >"$folder/text.txt"
measure=(perplexity models --text "$folder/text.txt" --length 2k --method yarn --factor 2 --protocol aligned:1000
  --anchors 1 --json --threads 1)
"$program" "${measure[@]}" >"$folder/one.json"
sent() { ip -n "$name-0" -s -j link show "$name-a" | python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["stats64"]["tx"]["bytes"])'; }
before=$(sent)
ip netns exec "$name-0" unshare --uts sh -c "hostname $name-0; exec \"\$@\"" sh \
  mpirun --allow-run-as-root --bind-to none --mca plm_rsh_agent "$folder/agent" --mca plm rsh \
  --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --mca btl tcp,self --mca pml ob1 \
  -x OMP_NUM_THREADS=1 -n 2 --host 10.77.0.1:1,10.77.0.2:1 --wdir "$PWD" \
  "$program" "${measure[@]}" >"$folder/two.json"
after=$(sent)
python3 - "$folder/one.json" "$folder/two.json" $((after - before)) "$rate" "$delay" <<'PY'
import json, sys
one, two = (json.load(open(path)) for path in sys.argv[1:3])
bytes_sent = int(sys.argv[3])
difference = abs(one["mean_nll"] - two["mean_nll"])
# Half of the keys and values of four layers: 2047 tokens, 6 heads of 32, in float32.
least = 4 * 1024 * 2 * 6 * 32 * 4
print(f"two ranks over {sys.argv[4]}, {sys.argv[5]}: {two['mean_nll']:.7f} nats, one rank {one['mean_nll']:.7f}; "
      f"{bytes_sent} bytes sent by one end, {two['seconds']:.1f} s and {one['seconds']:.1f} s")
assert difference <= 2e-6 * max(1, one["mean_nll"]), difference
assert bytes_sent >= least, (bytes_sent, least)
PY
