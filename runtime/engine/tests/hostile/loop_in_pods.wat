;; Never takes its pods.
;; expect: pods: timeout: used up
(func $pods (param i32 i32 i32 i32) (result i32) (loop $again (br $again)) unreachable)
