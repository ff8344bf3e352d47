;; Does what the tests ask for. `evaluate` takes the window as the number of a task:
;;
;;  1  for each sample of cpu-stat: set the container's quota to the time used
;;  2  protect the first pod given: min = its memory request, high = unlimited, oom group on
;;  3  protect it with nothing: release
;;  4  add one to the first byte of the saved state
;;  5  say two lines, one with a control character in it
;;  6  set a quota, then return the error `not today`
;;  7  set a quota, then hit a trap
;;  8  set the quota of the first pod to the node's memory capacity
;;  9  set and release quota and burst of the tier burstable
;; 10  emit an event on the first pod
;; 11  for each sample of cpu-stat: read it, and stage nothing
;; 12  release the quota of the first container of the first pod given
;; 13  set the quota of each pod and container of the bandwidth column to its baseline
;; 14  read memory-stat and pressure; set the quota of the first container to the sum of the first samples' last fields
;; 15  move the pages of the first container of numa-stat from its memory nodes to its CPU nodes, its identity being the token
;; 16  stop moving the pages of the first container of the first pod given
;; 17  set the weight of the tier besteffort to 1, and have the first container of the first pod given be idle
;; 18  release both, and twice
;; 19  read all of resctrl-monitor; set the quota of the first container to the sum of the first domain's size, the first class's
;;     occupancy, the first container's total and the rest's local bytes
;; 20  log why the first class is not in force
;; 21  set the quota of the first container to the sum of the node's available memory, its lowest watermark, its pressure of memory (some), and of
;;     the first group's CPU time, memory, CPU pressure (full) and killed processes
;; 30  set CPUs 3 and 70 and a memory limit of 4096 bytes on the first pod, and 2 shares on the tier besteffort
;; 31  lift the memory limit; release the CPUs and the weight
;;
;; 22  read all of cpu-topology; set the quota of the first container to the sum of the second CPU's core and node, the first exclusive CPU,
;;     the first set's first CPU, and a hundred times the generation
;;
;; `configure` returns the configuration as an error unless it is `{}`. `pods` sets the quota of the first pod's first container to
;; its memory limit, says the pod's configuration, and rejects the pod if its name has four letters.
(import "qosm:policy/cpu-stat@0.1.0" "read" (func $cpu_stat (param i32)))
(import "qosm:policy/cpu-stat@0.1.0" "read-bandwidth" (func $bandwidth (param i32)))
(import "qosm:policy/memory-stat@0.1.0" "read" (func $memory_stat (param i32)))
(import "qosm:policy/pressure@0.1.0" "read" (func $pressure (param i32)))
(import "qosm:policy/node@0.1.0" "read" (func $node (param i32)))
(import "qosm:policy/node@0.1.0" "read-memory" (func $node_memory (param i32)))
(import "qosm:policy/node@0.1.0" "read-pressure" (func $node_pressure (param i32)))
(import "qosm:policy/node@0.1.0" "read-use" (func $groups (param i32)))
(import "qosm:policy/node@0.1.0" "read-applications" (func $applications (param i32)))
(import "qosm:policy/cpu-topology@0.1.0" "read" (func $cpu_topology (param i32)))
(import "qosm:policy/cpu-topology@0.1.0" "generation" (func $cpu_generation (result i64)))
(import "qosm:policy/cpu-topology@0.1.0" "read-sets" (func $cpu_sets (param i32)))
(import "qosm:policy/numa-stat@0.1.0" "read" (func $numa_stat (param i32)))
(import "qosm:policy/page-migration@0.1.0" "start" (func $migrate (param i32 i32 i32 i32 i32 i64 i32 i32)))
(import "qosm:policy/page-migration@0.1.0" "stop" (func $stop (param i32)))
(import "qosm:policy/cpuset@0.1.0" "release-memory-nodes" (func $release_nodes (param i32)))
(import "qosm:policy/cpuset@0.1.0" "set-cpus" (func $set_cpus (param i32 i32 i32 i32 i32 i32)))
(import "qosm:policy/cpuset@0.1.0" "release-cpus" (func $release_cpus (param i32 i32)))
(import "qosm:policy/memory-limit@0.1.0" "set" (func $set_limit (param i32 i32 i32 i64 i32 i32)))
(import "qosm:policy/node-knobs@0.1.0" "read" (func $node_knobs (param i32)))
(import "qosm:policy/cpu-identity@0.1.0" "read-support" (func $identities (param i32)))
(import "qosm:policy/block-io@0.1.0" "read-devices" (func $block_devices (param i32)))
(import "qosm:policy/cpu-weight@0.1.0" "set-shares" (func $set_shares (param i32 i32 i32 i32 i32)))
(import "qosm:policy/cpu-bandwidth@0.1.0" "set-quota" (func $set_quota (param i32 i32 i32 i64 i32 i32)))
(import "qosm:policy/cpu-bandwidth@0.1.0" "set-burst" (func $set_burst (param i32 i32 i64 i32 i32)))
(import "qosm:policy/cpu-bandwidth@0.1.0" "release-quota" (func $release_quota (param i32 i32)))
(import "qosm:policy/cpu-bandwidth@0.1.0" "release-burst" (func $release_burst (param i32 i32)))
(import "qosm:policy/cpu-weight@0.1.0" "set-weight" (func $set_weight (param i32 i32 i32 i32 i32)))
(import "qosm:policy/cpu-weight@0.1.0" "set-idle" (func $set_idle (param i32 i32 i32 i32)))
(import "qosm:policy/cpu-weight@0.1.0" "release-weight" (func $release_weight (param i32 i32)))
(import "qosm:policy/cpu-weight@0.1.0" "release-idle" (func $release_idle (param i32)))
(import "qosm:policy/resctrl-monitor@0.1.0" "read-domains" (func $domains (param i32)))
(import "qosm:policy/resctrl-monitor@0.1.0" "read-classes" (func $classes (param i32)))
(import "qosm:policy/resctrl-monitor@0.1.0" "read-containers" (func $containers (param i32)))
(import "qosm:policy/resctrl-monitor@0.1.0" "read-rest" (func $rest (param i32)))
(import "qosm:policy/resctrl-allocation@0.1.0" "read-states" (func $states (param i32)))
(import "qosm:policy/node-object@0.1.0" "generation" (func $node_object (result i64)))
(import "qosm:policy/pod-object@0.1.0" "generation" (func $pod_object (result i64)))
(import "qosm:policy/cluster-config@0.1.0" "generation" (func $cluster_config (result i64)))
(import "qosm:policy/node-resource@0.1.0" "read-states" (func $resources (param i32)))
(import "qosm:policy/eviction@0.1.0" "read-evictions" (func $evictions (param i32)))
(import "qosm:policy/memory-protection@0.1.0" "set" (func $protect (param i32)))
(import "qosm:policy/state@0.1.0" "load" (func $load (param i32)))
(import "qosm:policy/state@0.1.0" "save" (func $save (param i32 i32 i32)))
(import "qosm:policy/log@0.1.0" "write" (func $log (param i32 i32 i32)))
(import "qosm:policy/pod-event@0.1.0" "emit" (func $emit (param i32 i32 i32 i32 i32 i32)))

(data (i32.const 4096) "because")       ;; 7
(data (i32.const 4112) "not today")     ;; 9
(data (i32.const 4128) "first\nline")   ;; 10
(data (i32.const 4144) "Throttled")     ;; 9
(data (i32.const 4160) "too often")     ;; 9
(data (i32.const 4176) "field")         ;; 5

(global $pod (mut i32) (i32.const 0))
(global $container (mut i32) (i32.const 0))
(global $request (mut i64) (i64.const 0))

;; Sets a quota in microseconds on a target.
(func $quota (param $kind i32) (param $id i32) (param $usec i64)
  (call $set_quota (local.get $kind) (local.get $id) (i32.const 1) (local.get $usec) (i32.const 4096) (i32.const 7)))

;; result::err of a text, at 4608.
(func $err (param $at i32) (param $len i32) (result i32)
  (i32.store (i32.const 4608) (i32.const 1))
  (i32.store (i32.const 4612) (local.get $at))
  (i32.store (i32.const 4616) (local.get $len))
  (i32.const 4608))

(func $configure (param $at i32) (param $len i32) (result i32)
  (if (i32.eq (local.get $len) (i32.const 2)) (then (return (i32.const 16))))
  (call $err (local.get $at) (local.get $len)))

(func $pods (param $at i32) (param $count i32) (param $gone i32) (param $gone_count i32) (result i32)
  (local $container i32)
  (if (i32.eqz (local.get $count)) (then (return (i32.const 16))))
  (global.set $pod (i32.load (local.get $at)))
  (global.set $request (i64.load offset=88 (local.get $at)))
  (call $log (i32.const 1) (i32.load offset=128 (local.get $at)) (i32.load offset=132 (local.get $at)))
  (if (i32.load offset=56 (local.get $at))
    (then
      (local.set $container (i32.load offset=52 (local.get $at)))
      (global.set $container (i32.load (local.get $container)))
      (call $quota (i32.const 2) (global.get $container) (i64.load offset=72 (local.get $container)))))
  (if (i32.ne (i32.load offset=16 (local.get $at)) (i32.const 4)) (then (return (i32.const 16))))
  ;; ok([rejection])
  (i32.store (i32.const 4640) (global.get $pod))
  (i32.store (i32.const 4644) (i32.const 4176))
  (i32.store (i32.const 4648) (i32.const 5))
  (i32.store (i32.const 4652) (i32.const 4160))
  (i32.store (i32.const 4656) (i32.const 9))
  (i32.store (i32.const 4608) (i32.const 0))
  (i32.store (i32.const 4612) (i32.const 4640))
  (i32.store (i32.const 4616) (i32.const 1))
  (i32.const 4608))

(func $evaluate (param $window i64) (param $cause i32) (param $alarms i32) (param $alarm_count i32) (result i32)
  (local $task i32) (local $at i32) (local $left i32)
  (local.set $task (i32.wrap_i64 (local.get $window)))

  (if (i32.or (i32.eq (local.get $task) (i32.const 1)) (i32.eq (local.get $task) (i32.const 11)))
    (then
      (call $cpu_stat (i32.const 4200))
      (local.set $at (i32.load (i32.const 4200)))
      (local.set $left (i32.load (i32.const 4204)))
      (block $done
        (loop $next
          (br_if $done (i32.eqz (local.get $left)))
          (if (i32.eq (local.get $task) (i32.const 1))
            (then (call $quota (i32.const 2) (i32.load (local.get $at)) (i64.load offset=8 (local.get $at)))))
          (local.set $at (i32.add (local.get $at) (i32.const 40)))
          (local.set $left (i32.sub (local.get $left) (i32.const 1)))
          (br $next)))))

  (if (i32.or (i32.eq (local.get $task) (i32.const 2)) (i32.eq (local.get $task) (i32.const 3)))
    (then
      (memory.fill (i32.const 4224) (i32.const 0) (i32.const 136))
      (i32.store8 (i32.const 4224) (i32.const 1))
      (i32.store (i32.const 4228) (global.get $pod))
      (if (i32.eq (local.get $task) (i32.const 2))
        (then
          (i32.store8 (i32.const 4232) (i32.const 1))
          (i64.store (i32.const 4240) (global.get $request))
          ;; high: some(unlimited)
          (i32.store8 (i32.const 4264) (i32.const 1))
          ;; oom-group: some(true)
          (i32.store8 (i32.const 4322) (i32.const 1))
          (i32.store8 (i32.const 4323) (i32.const 1))))
      (i32.store (i32.const 4352) (i32.const 4096))
      (i32.store (i32.const 4356) (i32.const 7))
      (call $protect (i32.const 4224))))

  (if (i32.eq (local.get $task) (i32.const 4))
    (then
      (call $load (i32.const 4200))
      (i32.store8 (i32.const 4216) (i32.const 0))
      (memory.copy (i32.const 4216) (i32.load (i32.const 4200)) (i32.load (i32.const 4204)))
      (i32.store8 (i32.const 4216) (i32.add (i32.load8_u (i32.const 4216)) (i32.const 1)))
      (call $save (i32.const 4216) (i32.const 1) (i32.const 4400))
      (if (i32.load8_u (i32.const 4400)) (then unreachable))))

  (if (i32.eq (local.get $task) (i32.const 5))
    (then
      (call $log (i32.const 0) (i32.const 4128) (i32.const 10))
      (call $log (i32.const 2) (i32.const 4160) (i32.const 9))))

  (if (i32.or (i32.eq (local.get $task) (i32.const 6)) (i32.eq (local.get $task) (i32.const 7)))
    (then
      (call $log (i32.const 2) (i32.const 4160) (i32.const 9))
      (call $quota (i32.const 0) (i32.const 1) (i64.const 1000))
      (if (i32.eq (local.get $task) (i32.const 7)) (then unreachable))
      (return (call $err (i32.const 4112) (i32.const 9)))))

  (if (i32.eq (local.get $task) (i32.const 8))
    (then
      (call $node (i32.const 4400))
      (call $quota (i32.const 1) (global.get $pod) (i64.load (i32.const 4408)))))

  (if (i32.eq (local.get $task) (i32.const 9))
    (then
      (call $quota (i32.const 0) (i32.const 1) (i64.const 5000))
      (call $set_burst (i32.const 0) (i32.const 1) (i64.const 6000) (i32.const 4096) (i32.const 7))
      (call $release_quota (i32.const 0) (i32.const 1))
      (call $release_burst (i32.const 0) (i32.const 1))
      (call $release_burst (i32.const 0) (i32.const 1))))

  (if (i32.eq (local.get $task) (i32.const 10))
    (then
      (call $emit (global.get $pod) (i32.const 1) (i32.const 4144) (i32.const 9) (i32.const 4160) (i32.const 9))))

  (if (i32.eq (local.get $task) (i32.const 12))
    (then (call $release_quota (i32.const 2) (global.get $container))))

  (if (i32.eq (local.get $task) (i32.const 13))
    (then
      (call $bandwidth (i32.const 4200))
      (local.set $at (i32.load (i32.const 4200)))
      (local.set $left (i32.load (i32.const 4204)))
      (block $done
        (loop $next
          (br_if $done (i32.eqz (local.get $left)))
          (call $set_quota
            (i32.load8_u (local.get $at)) (i32.load offset=4 (local.get $at))
            (i32.load8_u offset=24 (local.get $at)) (i64.load offset=32 (local.get $at))
            (i32.const 4096) (i32.const 7))
          (local.set $at (i32.add (local.get $at) (i32.const 48)))
          (local.set $left (i32.sub (local.get $left) (i32.const 1)))
          (br $next)))))

  (if (i32.eq (local.get $task) (i32.const 14))
    (then
      (call $memory_stat (i32.const 4200))
      (call $pressure (i32.const 4208))
      (call $quota (i32.const 2) (global.get $container)
        (i64.add
          (i64.load offset=56 (i32.load (i32.const 4200)))
          (i64.load offset=48 (i32.load (i32.const 4208)))))))

  (if (i32.eq (local.get $task) (i32.const 15))
    (then
      (call $numa_stat (i32.const 4200))
      (local.set $at (i32.load (i32.const 4200)))
      (call $migrate
        (i32.load (local.get $at))
        (i32.load offset=24 (local.get $at)) (i32.load offset=28 (local.get $at))
        (i32.load offset=16 (local.get $at)) (i32.load offset=20 (local.get $at))
        (i64.load offset=8 (local.get $at))
        (i32.const 4096) (i32.const 7))))

  (if (i32.eq (local.get $task) (i32.const 16))
    (then (call $stop (global.get $container))))

  (if (i32.eq (local.get $task) (i32.const 17))
    (then
      (call $set_weight (i32.const 0) (i32.const 2) (i32.const 1) (i32.const 4096) (i32.const 7))
      (call $set_idle (global.get $container) (i32.const 1) (i32.const 4096) (i32.const 7))))

  (if (i32.eq (local.get $task) (i32.const 30))
    (then
      (i32.store (i32.const 4700) (i32.const 70))
      (i32.store (i32.const 4704) (i32.const 3))
      (call $set_cpus (i32.const 1) (global.get $pod) (i32.const 4700) (i32.const 2) (i32.const 4096) (i32.const 7))
      (call $set_limit (i32.const 1) (global.get $pod) (i32.const 1) (i64.const 4096) (i32.const 4096) (i32.const 7))
      (call $set_shares (i32.const 0) (i32.const 2) (i32.const 2) (i32.const 4096) (i32.const 7))))

  (if (i32.eq (local.get $task) (i32.const 31))
    (then
      (call $set_limit (i32.const 1) (global.get $pod) (i32.const 0) (i64.const 0) (i32.const 4096) (i32.const 7))
      (call $release_cpus (i32.const 1) (global.get $pod))
      (call $release_cpus (i32.const 1) (global.get $pod))
      (call $release_weight (i32.const 0) (i32.const 2))))

  (if (i32.eq (local.get $task) (i32.const 18))
    (then
      (call $release_weight (i32.const 0) (i32.const 2))
      (call $release_weight (i32.const 0) (i32.const 2))
      (call $release_idle (global.get $container))
      (call $release_idle (global.get $container))))

  (if (i32.eq (local.get $task) (i32.const 19))
    (then
      (call $domains (i32.const 4200))
      (call $classes (i32.const 4208))
      (call $containers (i32.const 4216))
      (call $rest (i32.const 4224))
      (call $quota (i32.const 2) (global.get $container)
        (i64.add
          (i64.add
            (i64.load offset=16 (i32.load (i32.const 4200)))
            (i64.load offset=16 (i32.load offset=8 (i32.load (i32.const 4208)))))
          (i64.add
            (i64.load offset=48 (i32.load offset=4 (i32.load (i32.const 4216))))
            (i64.load offset=32 (i32.load (i32.const 4224))))))))

  (if (i32.eq (local.get $task) (i32.const 20))
    (then
      (call $states (i32.const 4200))
      (local.set $at (i32.load (i32.const 4200)))
      (call $log (i32.const 2) (i32.load offset=12 (local.get $at)) (i32.load offset=16 (local.get $at)))))

  (if (i32.eq (local.get $task) (i32.const 21))
    (then
      (call $node_memory (i32.const 4616))
      (call $node_pressure (i32.const 4720))
      (call $groups (i32.const 4200))
      (local.set $at (i32.load (i32.const 4200)))
      (call $quota (i32.const 2) (global.get $container)
        (i64.add
          (i64.add
            (i64.add (i64.load offset=24 (i32.const 4616)) (i64.load offset=56 (i32.const 4616)))
            (i64.load offset=24 (i32.const 4720)))
          (i64.add
            (i64.add (i64.load offset=16 (local.get $at)) (i64.load offset=32 (local.get $at)))
            (i64.add (i64.load offset=88 (local.get $at)) (i64.load offset=120 (local.get $at))))))))

  (if (i32.eq (local.get $task) (i32.const 22))
    (then
      (call $cpu_topology (i32.const 4616))
      (call $cpu_sets (i32.const 4200))
      (local.set $at (i32.load (i32.const 4616)))
      (call $quota (i32.const 2) (global.get $container)
        (i64.add
          (i64.mul (i64.const 100) (call $cpu_generation))
          (i64.add
            (i64.extend_i32_u (i32.add (i32.load offset=24 (local.get $at)) (i32.load offset=32 (local.get $at))))
            (i64.extend_i32_u
              (i32.add
                (i32.load (i32.load offset=8 (i32.load offset=20 (i32.const 4616))))
                (i32.load (i32.load offset=8 (i32.load (i32.const 4200)))))))))))

  (i32.const 16))
