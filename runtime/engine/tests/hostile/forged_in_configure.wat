;; Sets something before it was given any pod.
;; expect: configure: rule: it names pod number 1, which it was not given
(import "qosm:policy/cpu-bandwidth@0.1.0" "release-quota" (func $release (param i32 i32)))
(func $configure (param i32 i32) (result i32)
  (call $release (i32.const 1) (i32.const 1))
  (i32.const 16))
