;; Says ten thousand long lines: the first 64 are kept, cut, and the others are counted.
;; expect: evaluate: ok
(import "qosm:policy/log@0.1.0" "write" (func $write (param i32 i32 i32)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (local $left i32)
  (local.set $left (i32.const 10000))
  (loop $again
    (call $write (i32.const 2) (i32.const 524288) (i32.const 2000))
    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
  (i32.const 16))
