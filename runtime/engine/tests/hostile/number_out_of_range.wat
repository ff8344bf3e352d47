;; Sets a burst that no cgroup file can hold.
;; expect: evaluate: rule: its burst is 18446744073709551615, which no cgroup file can hold
(import "qosm:policy/cpu-bandwidth@0.1.0" "set-burst" (func $set_burst (param i32 i32 i64 i32 i32)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $set_burst (i32.const 2) (i32.const 10) (i64.const -1) (i32.const 0) (i32.const 0))
  (i32.const 16))
