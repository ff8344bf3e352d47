;; Traps on its pods.
;; expect: pods: trap: unreachable
(func $pods (param i32 i32 i32 i32) (result i32) unreachable)
