;; Traps instead of saying who it is.
;; expect: describe: trap: unreachable
(func $describe (result i32) unreachable)
