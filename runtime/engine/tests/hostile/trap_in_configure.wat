;; Traps on its configuration.
;; expect: configure: trap: unreachable
(func $configure (param i32 i32) (result i32) unreachable)
