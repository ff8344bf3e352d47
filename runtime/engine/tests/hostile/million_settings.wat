;; Stages a million settings.
;; expect: evaluate: rule: more than 16384 settings
(import "qosm:policy/cpu-bandwidth@0.1.0" "set-burst" (func $set_burst (param i32 i32 i64 i32 i32)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (local $left i32)
  (local.set $left (i32.const 1000000))
  (loop $again
    (call $set_burst (i32.const 2) (i32.const 10) (i64.extend_i32_u (local.get $left)) (i32.const 0) (i32.const 0))
    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
  (i32.const 16))
