;; Reads a column for ever: each round is spent in the host.
;; expect: evaluate: timeout: used up
(import "qosm:policy/cpu-stat@0.1.0" "read" (func $read (param i32)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (loop $again
    (call $read (i32.const 4096))
    (global.set $heap (i32.const 65536))
    (br $again))
  unreachable)
