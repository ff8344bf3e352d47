;; Gives a new reason of four kilobytes each time; what is beyond the text of a call is cut.
;; expect: evaluate: rule: more than 16384 settings
(import "qosm:policy/cpu-bandwidth@0.1.0" "set-burst" (func $set_burst (param i32 i32 i64 i32 i32)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (local $count i32)
  (loop $again
    ;; Two letters that spell the count make each reason another one.
    (i32.store8 (i32.const 524288) (i32.add (i32.const 32) (i32.and (local.get $count) (i32.const 63))))
    (i32.store8 (i32.const 524289)
      (i32.add (i32.const 32) (i32.and (i32.shr_u (local.get $count) (i32.const 6)) (i32.const 63))))
    (call $set_burst (i32.const 2) (i32.const 10) (i64.const 1) (i32.const 524288) (i32.const 4096))
    (local.set $count (i32.add (local.get $count) (i32.const 1)))
    (br $again))
  unreachable)
