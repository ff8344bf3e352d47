;; Takes a container's number for a pod's.
;; expect: evaluate: rule: it names pod number 10, which it was not given
(import "qosm:policy/memory-protection@0.1.0" "release" (func $release (param i32 i32)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $release (i32.const 1) (i32.const 10))
  (i32.const 16))
