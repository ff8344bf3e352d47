;; Acts before it was asked anything. Already its description is refused, for it is instantiated for that too.
;; expect: start: rule: it calls `qosm:policy/cpu-bandwidth@0.1.3#release-quota` while it describes itself
(import "qosm:policy/cpu-bandwidth@0.1.0" "release-quota" (func $release (param i32 i32)))
(func $act (call $release (i32.const 0) (i32.const 0)))
(start $act)
