;; Traps in its start function.
;; expect: start: trap: unreachable
(func $trap unreachable)
(start $trap)
