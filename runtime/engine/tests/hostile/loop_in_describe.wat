;; Never says who it is.
;; expect: describe: timeout: used up
(func $describe (result i32) (loop $again (br $again)) unreachable)
