# The three default modules together on one node, for as many minutes as MINUTES says (60): pods that are throttled, whose memory is
# on the wrong NUMA node, that press the node's memory, that come and go. Once a minute, what the agent takes and holds; at the
# end, what it leaves. For the VM: cargo xtask vm run --file target/release/qosm:/bin/qosm --file target/policies:/policies
#     --script benches/soak.sh --timeout 4500
MINUTES=${MINUTES:-60}
ROOT=/sys/fs/cgroup/soak
PODS=$ROOT/kubepods
mkdir -p /tmp/pods /tmp/state

make() { # a cgroup, with what a kubelet hands down
    path=/sys/fs/cgroup
    for part in $(echo "soak/kubepods/$1" | tr / ' '); do
        echo '+cpu +memory +cpuset' >$path/cgroup.subtree_control
        path=$path/$part
        mkdir -p $path
    done
}

pod() { # name, tier, labels, annotations, resources
    cat >/tmp/pod.new <<POD
{"apiVersion": "v1", "kind": "Pod",
 "metadata": {"name": "$1", "namespace": "soak", "uid": "u-$1", "labels": {$3}, "annotations": {$4}},
 "spec": {"containers": [{"name": "app", "resources": {$5}}]}}
POD
    mv /tmp/pod.new /tmp/pods/$1.json
}

enter() { # group, then a command in it
    group=$PODS/$1
    shift
    sh -c "echo \$\$ >$group/cgroup.procs; $*" &
}

make burstable/podu-web/app
echo '20000 100000' >$PODS/burstable/podu-web/cpu.max
echo '20000 100000' >$PODS/burstable/podu-web/app/cpu.max
make burstable/podu-redis/app
make besteffort/podu-batch/app
echo 400M >$PODS/besteffort/podu-batch/app/memory.max
echo 400M >$PODS/besteffort/podu-batch/memory.max
pod web burstable '"koordinator.sh/qosClass": "LS"' \
    '"koordinator.sh/cpuBurst": "{\"policy\": \"auto\"}", "koordinator.sh/memoryQOS": "{\"policy\": \"auto\"}"' \
    '"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}'
pod redis burstable '"koordinator.sh/qosClass": "LS"' \
    '"koordinator.sh/memoryLocality": "{\"policy\": \"bestEffort\", \"migrateIntervalMinutes\": 3}"' \
    '"requests": {"cpu": "1", "memory": "128Mi"}'
pod batch besteffort '"koordinator.sh/qosClass": "BE"' \
    '"koordinator.sh/memoryQOS": "{\"policy\": \"auto\", \"minLimitPercent\": 0}"' \
    '"requests": {"kubernetes.io/batch-memory": "400Mi"}, "limits": {"kubernetes.io/batch-memory": "400Mi"}'

echo 0-1 >$PODS/burstable/podu-redis/app/cpuset.cpus
enter burstable/podu-web/app 'while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; usleep 700000; done'
enter burstable/podu-redis/app 'x=$(head -c 20000000 /dev/zero | tr "\0" x); while :; do sleep 5; done; echo ${#x}'
enter besteffort/podu-batch/app 'while :; do x=$(head -c 30000000 /dev/zero | tr "\0" x); x=; sleep 3; done'
sleep 5

before=$(cat $PODS/burstable/podu-web/cpu.max $PODS/burstable/podu-web/app/cpu.max $PODS/burstable/podu-web/app/memory.* 2>/dev/null | md5sum)
# The VM's nodes are small: what moves to and fro with the CPUs is less than what is worth moving on a real one.
cat >/tmp/agent.json <<AGENT
{"policies": [{"name": "cpu-burst", "evaluationMillis": 1000}, {"name": "memory-qos", "evaluationMillis": 1000},
              {"name": "memory-locality", "evaluationMillis": 1000, "config": {"minRemotePages": 256}}]}
AGENT
/bin/qosm agent --pods /tmp/pods --agent-config /tmp/agent.json --state-dir /tmp/state --admin-socket /tmp/admin.sock \
    --cgroup-driver cgroupfs --cgroup-root /soak --metrics-listen 127.0.0.1:9100 --module-dir /policies 2>/tmp/agent.log &
agent=$!
ask() { /bin/qosm "$@" --admin-socket /tmp/admin.sock; }
metric() { wget -q -O - http://127.0.0.1:9100/metrics | grep "^$1" | awk '{sum += $NF} END {print sum + 0}'; }

minute=0
while [ $minute -lt $MINUTES ]; do
    sleep 60
    minute=$((minute + 1))
    [ -d /proc/$agent ] || { echo "the agent ended"; cat /tmp/agent.log; exit 1; }
    # A pod that comes and goes, and CPUs that move to the other node.
    if [ $((minute % 2)) = 1 ]; then
        make burstable/podu-churn/app
        pod churn burstable '"koordinator.sh/qosClass": "LS"' '"koordinator.sh/cpuBurst": "{\"policy\": \"auto\"}", "koordinator.sh/memoryQOS": "{\"policy\": \"auto\"}"' \
            '"requests": {"memory": "16Mi"}, "limits": {"cpu": "500m", "memory": "32Mi"}'
    else
        rm -f /tmp/pods/churn.json
        sleep 2
        rmdir $PODS/burstable/podu-churn/app $PODS/burstable/podu-churn
    fi
    [ $((minute % 7)) = 0 ] && { [ $((minute / 7 % 2)) = 1 ] && cpus=2-3 || cpus=0-1; echo $cpus >$PODS/burstable/podu-redis/app/cpuset.cpus; }
    rss=$(awk '/VmRSS/ {print $2}' /proc/$agent/status)
    cpu=$(awk '{print $14 + $15}' /proc/$agent/stat)
    echo "minute $minute: rss $rss KiB, files $(ls /proc/$agent/fd | wc -l), threads $(ls /proc/$agent/task | wc -l)," \
        "cpu $((cpu / minute)) ticks a minute, log lines $(wc -l </tmp/agent.log), leases $(metric qosm_leases)," \
        "writes $(metric qosm_knob_writes_total), drift $(metric qosm_knob_drift_total), refused $(metric qosm_knob_refusals_total)," \
        "failures $(metric qosm_policy_failures_total), alarms $(metric qosm_alarms_total)," \
        "pages moved $(metric qosm_migration_pages_moved_total)"
    [ $((minute % 10)) = 0 ] && ask get events | tail -4
done
ask get policies
ask get events | tail -8
kill -TERM $agent
wait $agent
echo "the agent ended with $?"
after=$(cat $PODS/burstable/podu-web/cpu.max $PODS/burstable/podu-web/app/cpu.max $PODS/burstable/podu-web/app/memory.* 2>/dev/null | md5sum)
cat $PODS/burstable/podu-web/app/cpu.max $PODS/burstable/podu-web/app/memory.min $PODS/burstable/podu-web/app/memory.low $PODS/burstable/podu-web/app/memory.high
echo "log:"
cut -c1-220 /tmp/agent.log | tail -40
