;; Sets the quota of something that is neither tier nor pod nor container.
;; expect: evaluate: trap: discriminant
(import "qosm:policy/cpu-bandwidth@0.1.0" "release-quota" (func $release (param i32 i32)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $release (i32.const 3) (i32.const 1))
  (i32.const 16))
