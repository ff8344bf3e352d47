;; `wasi_snapshot_preview1` without a world behind it: what the Go runtime asks of an operating system, answered inside of the
;; component. The host offers no WASI, and a policy must decide the same from the same input, on each machine and in a replay. So:
;;
;;   - there are no arguments, no environment, no files and no directories: every descriptor but 1 and 2 is unknown;
;;   - what is written to 1 and 2 is dropped; `qosm:policy/log` is where a policy speaks;
;;   - time starts at the instance's start and goes on by a microsecond with each look at it, or as far as somebody sleeps, who is
;;     woken at once;
;;   - random bytes are the same ones in each instance;
;;   - an exit is a trap.
;;
;; wit-component links it as the adapter of that name, and leaves out what is not called. It shares the module's memory.
(module
  (import "env" "memory" (memory 0))

  ;; Nanoseconds. Not from 0: Go takes that for a clock that does not work.
  (global $now (mut i64) (i64.const 1000))
  ;; SplitMix64's state.
  (global $seed (mut i64) (i64.const 0x716f736d))

  ;; errno: 0 success, 8 badf, 28 inval, 52 nosys.

  (func $no_two_sizes (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    (i32.const 0))
  (func $nothing_to_get (param i32 i32) (result i32) (i32.const 0))
  (export "args_sizes_get" (func $no_two_sizes))
  (export "args_get" (func $nothing_to_get))
  (export "environ_sizes_get" (func $no_two_sizes))
  (export "environ_get" (func $nothing_to_get))

  (func (export "clock_time_get") (param $clock i32) (param $precision i64) (param $time i32) (result i32)
    (global.set $now (i64.add (global.get $now) (i64.const 1000)))
    (i64.store (local.get $time) (global.get $now))
    (i32.const 0))
  (func (export "clock_res_get") (param $clock i32) (param $resolution i32) (result i32)
    (i64.store (local.get $resolution) (i64.const 1000))
    (i32.const 0))

  ;; One byte a step: it is called a handful of times, for a few dozen bytes.
  (func (export "random_get") (param $at i32) (param $length i32) (result i32)
    (local $end i32) (local $z i64)
    (local.set $end (i32.add (local.get $at) (local.get $length)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (global.set $seed (i64.add (global.get $seed) (i64.const 0x9e3779b97f4a7c15)))
        (local.set $z (global.get $seed))
        (local.set $z (i64.mul
          (i64.xor (local.get $z) (i64.shr_u (local.get $z) (i64.const 30)))
          (i64.const 0xbf58476d1ce4e5b9)))
        (local.set $z (i64.mul
          (i64.xor (local.get $z) (i64.shr_u (local.get $z) (i64.const 27)))
          (i64.const 0x94d049bb133111eb)))
        (i64.store8 (local.get $at) (i64.xor (local.get $z) (i64.shr_u (local.get $z) (i64.const 31))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (i32.const 0))

  ;; The first subscription comes true at once: a sleep by the clock being put on, anything else by its descriptor being unknown.
  ;; A subscription: userdata 0, tag 8, a clock's timeout 24 and flags 40. An event: userdata 0, error 8, type 10; 32 bytes.
  (func (export "poll_oneoff") (param $in i32) (param $out i32) (param $count i32) (param $events i32) (result i32)
    (if (i32.eqz (local.get $count)) (then (return (i32.const 28))))
    (memory.fill (local.get $out) (i32.const 0) (i32.const 32))
    (i64.store (local.get $out) (i64.load (local.get $in)))
    (i32.store8 offset=10 (local.get $out) (i32.load8_u offset=8 (local.get $in)))
    (if (i32.load8_u offset=8 (local.get $in))
      (then (i32.store16 offset=8 (local.get $out) (i32.const 8)))
      (else (if (i32.and (i32.load16_u offset=40 (local.get $in)) (i32.const 1))
        (then (if (i64.gt_u (i64.load offset=24 (local.get $in)) (global.get $now))
          (then (global.set $now (i64.load offset=24 (local.get $in))))))
        (else (global.set $now (i64.add (global.get $now) (i64.load offset=24 (local.get $in))))))))
    (i32.store (local.get $events) (i32.const 1))
    (i32.const 0))
  (func (export "sched_yield") (result i32) (i32.const 0))
  (func (export "proc_exit") (param i32) (unreachable))

  ;; All of it is as good as written.
  (func (export "fd_write") (param $fd i32) (param $vectors i32) (param $count i32) (param $written i32) (result i32)
    (local $sum i32)
    (if (i32.gt_u (i32.sub (local.get $fd) (i32.const 1)) (i32.const 1)) (then (return (i32.const 8))))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $sum (i32.add (local.get $sum) (i32.load offset=4 (local.get $vectors))))
        (local.set $vectors (i32.add (local.get $vectors) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $written) (local.get $sum))
    (i32.const 0))

  ;; Everything else is about files and sockets, of which there are none.
  (func $badf_1 (param i32) (result i32) (i32.const 8))
  (func $badf_2 (param i32 i32) (result i32) (i32.const 8))
  (func $badf_3 (param i32 i32 i32) (result i32) (i32.const 8))
  (func $badf_4 (param i32 i32 i32 i32) (result i32) (i32.const 8))
  (func $badf_5 (param i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func $badf_6 (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func $badf_size (param i32 i64) (result i32) (i32.const 8))
  (func $badf_at (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (export "fd_close" (func $badf_1))
  (export "fd_fdstat_get" (func $badf_2))
  (export "fd_fdstat_set_flags" (func $badf_2))
  (func (export "fd_fdstat_set_rights") (param i32 i64 i64) (result i32) (i32.const 8))
  (export "fd_filestat_get" (func $badf_2))
  (export "fd_filestat_set_size" (func $badf_size))
  (export "fd_pread" (func $badf_at))
  (export "fd_prestat_get" (func $badf_2))
  (export "fd_prestat_dir_name" (func $badf_3))
  (export "fd_pwrite" (func $badf_at))
  (export "fd_read" (func $badf_4))
  (export "fd_readdir" (func $badf_at))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 8))
  (export "fd_sync" (func $badf_1))
  (export "path_create_directory" (func $badf_3))
  (export "path_filestat_get" (func $badf_5))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) (i32.const 8))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (i32.const 8))
  (export "path_readlink" (func $badf_6))
  (export "path_remove_directory" (func $badf_3))
  (export "path_rename" (func $badf_6))
  (export "path_symlink" (func $badf_5))
  (export "path_unlink_file" (func $badf_3))
  (export "sock_accept" (func $badf_3))
  (export "sock_shutdown" (func $badf_2)))
